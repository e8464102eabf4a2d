// Package tlsfiles keeps TLS material that lives in files: key pairs and
// bundles of CA certificates. It follows the files as they change, so that
// certificates are rotated without a restart, and makes a self-signed pair for
// a server that was given none.
//
// A Pair and a Bundle hold the last good content: what cannot be read or
// parsed is reported and leaves the content in use as it was. Watch reloads
// them when their folders change (a rename, as well as the symbolic links of
// mounted secrets) and at least once a minute.
//
// It is used by package serving for the server's own certificate, and by
// whoever checks or presents certificates that may rotate.
package tlsfiles

// Package tlsfiles loads TLS material from files: key pairs and bundles of CA certificates. It
// reloads changed files, so that certificates are rotated without a restart. It creates a
// self-signed pair for a server that was given none.
//
// A Pair and a Bundle hold the last valid content. A file that cannot be read or parsed is
// reported, and the content in use remains. Watch reloads files when their folders change,
// including renames and the symbolic links of mounted secrets, and at least once a minute.
//
// Package serving uses it for the server's certificate. Other packages use it for client
// certificates and CA bundles.
package tlsfiles

// Package callerauth authorizes callers of the suite's review services and rejects other clients. A
// caller authenticates by a client certificate that the service's CA bundle verifies and that has
// one of the configured common names, if any. A flag with an explicit name allows any client.
//
// Options holds the flags. A Guard decides on requests. It caches valid certificates for a minute:
// verifying costs more than reviewing.
package callerauth

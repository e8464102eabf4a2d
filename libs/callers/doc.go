// Package callers says who may ask the suite's review services, and turns others
// away. A caller is known by a client certificate that the service's CA bundle
// verifies and, where names are given, by the common name in it. Anybody may ask
// only where a flag says so that is named for what it is.
//
// Options are flags; a Guard decides on requests. It remembers which certificates it
// found good for a minute: verifying costs more than reviewing.
package callers

// Package app assembles the tokencleaner service, which deletes expired bootstrap tokens: options,
// server, health checks, leader election, and the controller that the leader runs.
//
// It is ready when the API server is reachable, the lease has been read and, on the leader, the
// tokens are listed; /readyz/<check> reports what it waits for. It shuts down in the phases of
// package serving, and releases the lease when the controller has ended. main calls it.
package app

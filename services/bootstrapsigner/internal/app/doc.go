// Package app assembles the bootstrapsigner service, the signer of the
// cluster-info config map: options, server, health, leader election, and the
// controller that the leader runs.
//
// It is ready when the API server can be reached, the lease has been read and,
// on the leader, config map and tokens are listed; /readyz/<check> tells what it
// waits for. It shuts down along the timeline of package serving, and gives the
// lease up when the controller has ended. main calls it.
package app

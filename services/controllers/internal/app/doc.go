// Package app assembles the controllers service: the controllers that a control plane without nodes
// needs, so that kube-controller-manager is optional. It holds options, server, health checks,
// leader election, and the selected controllers, which the leader runs.
//
// The leader steps aside while a kube-controller-manager holds its own lease, so that no controller
// runs twice. It is ready when the API server is reachable, the lease has been read and, on a
// leader that does not step aside, all objects are listed. main calls it.
package app

// Package leaderelection implements coordinated leader election (Kubernetes: KEP-4355) for clients
// that let the server choose their leader. A candidate creates a LeaseCandidate with the name of
// the Lease and its own versions. The server elects a candidate and writes its name into the Lease.
// The elected candidate then renews and releases the Lease itself, as client-go does.
//
// Only one replica of the server elects leaders at a time: the holder of the controller's own
// Lease.
//
//	controller.go  Controller: receives notifications of changed candidates and leases
//	elector.go     elector: acquires and renews the controller's own Lease
//	worker.go      worker: tracks the candidates of each lease, and queues leases for evaluation
//	candidate.go   candidate: when a candidate last reported, and which candidate is the best
//	evaluate.go    the evaluation of a lease: pings, deletes and elects candidates
//
// Package build creates a Controller if the gate CoordinatedLeaderElection is on, and notifies it
// of changed candidates and leases. The state of a worker belongs to its own goroutine, except for
// the work queue and the set of contested leases.
package leaderelection

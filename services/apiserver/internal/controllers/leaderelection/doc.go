// Package leaderelection implements coordinated leader election (Kubernetes: KEP-4355) for clients
// that let the server choose their leader. Candidates declare in LeaseCandidates which lease they
// stand for and which versions they are. The server writes the chosen candidate into the Lease.
// The candidate itself renews and releases the Lease, as client-go does.
//
// One replica at a time does the work: the holder of the controller's own Lease (elector.go). It
// tracks the candidates of each lease (worker.go). A change of a lease or candidate causes one
// evaluation of that lease:
//
//	candidate.go  the candidates, and when each last reported that it is alive
//	step.go  whether an election is due, which candidates must first report, what to write, and
//	         which candidates to delete
//
// Package build creates a Controller if the gate CoordinatedLeaderElection is on, and notifies it
// of changed candidates and leases. A worker's state belongs to its own goroutine, except for the
// work queue and the set of contested leases.
package leaderelection

// Package leaderelection implements coordinated leader election (Kubernetes: KEP-4355) for clients that
// let the server choose their leader. Candidates declare in LeaseCandidates which lease they stand
// for and which versions they are. The server writes the chosen candidate into the Lease. Leading,
// renewing and releasing are up to the candidate; client-go does it.
//
// One replica at a time does the work: the holder of the Lease of the controller (elector.go). While
// it holds the Lease, it tracks the candidates of each lease (worker.go). A change of a lease or
// candidate costs one
// evaluation of that lease and its candidates. The evaluation depends on nothing else: the
// candidates and when each was last heard of (pool.go), whether an election is due, which
// candidates must first confirm that they are alive, what to write, and which candidates are
// deleted (step.go).
//
// Package build creates a Controller if the gate CoordinatedLeaderElection is on, and notifies it of
// changed candidates and leases. A worker's state belongs to its own goroutine, except for the
// work queue and the set of contested leases.
package leaderelection

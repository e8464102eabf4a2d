// Package leaders chooses who leads, for those who let the server choose (Kubernetes:
// KEP-4355, coordinated leader election): candidates say in LeaseCandidates which lease
// they stand for and which versions they are, and the Lease that is written says who is
// chosen. Leading, renewing and giving up is theirs; client-go does it.
//
// One replica at a time does the work: the one that has its office, which is a Lease too
// (office.go). For its term it knows who stands for which lease (chooser.go), and each
// change costs a look at one lease and those who stand for it. What that lease needs follows
// from it and its candidates: who stands, and since when nothing was heard of it (pool.go),
// whether somebody is to be chosen, who has to be asked before whether they are there, what
// is written, and which candidates are forgotten (step.go).
//
// The app makes a Keeper where the gate CoordinatedLeaderElection is on, and tells it which
// candidates and leases change.
package leaders

// Package robustness finds out whether the API servers keep their guarantees
// while things break: real processes of etcd, of NATS and of three replicas are
// killed, paused and cut off from each other, while clients write, read, watch
// and keep informers; then everything that the clients saw is checked,
// guarantee by guarantee (package check).
//
// A Cluster lives through one scenario after the other:
//
//	namespaces and traffic ─► faults, each held and healed ─► all recovered ─►
//	writes end ─► all told ─► traffic ends ─► the history is checked
//
// What happens is drawn from a seed, which every run logs and
// BINNACLE_ROBUSTNESS_SEED sets. The same seed makes the same choices; it cannot
// make the machine take the same time for them. The histories of a scenario
// that fails are kept, with the logs of the servers.
//
// Meanwhile intruders ask every replica for what they may not have.
//
// The disks under etcd are file systems that the tests serve themselves, by FUSE; where
// that is not allowed, they are left out. Links are proxies: what packets that are lost
// do to those who talk by TCP is that it comes late, and after what others said later.
// The publisher that lies is a client of NATS that tells again what it heard.
//
// Clocks jump in one process alone, whose program is built with another package time
// (harness/clock.go).
//
// The tests are short; BINNACLE_ROBUSTNESS=long adds clocks, and rounds of random faults
// for as long as BINNACLE_ROBUSTNESS_TIME says (10m by default), at whose end heaps must
// be as large as before. BINNACLE_ROBUSTNESS_FROM names a commit whose API server one of
// the replicas is.
package robustness

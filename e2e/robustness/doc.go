// Package robustness tests the guarantees of the API servers during failures. It kills, pauses and
// disconnects real processes of etcd, NATS and three replicas while clients write, read, watch and
// run informers. It then checks the recorded history for each guarantee (package check).
//
// A Cluster runs one scenario after another:
//
//	namespaces and traffic ─► faults, each held and healed ─► all recovered ─►
//	writes end ─► all events delivered ─► traffic ends ─► the history is checked
//
// Random choices come from a seed, which every run logs and BINNACLE_ROBUSTNESS_SEED sets. The same
// seed makes the same choices, but their timing differs. The histories of a failed scenario are
// kept with the logs of the servers.
//
// During each scenario, unauthorized clients send requests to every replica.
//
// The disks under etcd are FUSE file systems of the tests. Where FUSE is not permitted, these tests
// are skipped. Links are TCP proxies. A proxy models packet loss as delay, because TCP retransmits
// lost packets. The forger is a NATS client that publishes recorded messages again.
//
// A clock jumps in one process only, whose binary is built with another package time
// (harness.Clock).
//
// The default tests are short. BINNACLE_ROBUSTNESS=long adds clock faults and rounds of random
// faults for BINNACLE_ROBUSTNESS_TIME (10m by default). At their end heaps must have their previous
// size. BINNACLE_ROBUSTNESS_FROM names a commit whose API server runs as one of the replicas.
package robustness

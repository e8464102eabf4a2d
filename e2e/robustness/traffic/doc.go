// Package traffic is what clients do to the servers of a robustness test while
// things break: writers change objects, readers list them, and watches and
// informers follow them. Everything that they see is recorded as a history.
//
// Traffic goes through these states:
//
//	Start ── StopWrites ──► only following ── Stop ──► History
//
// Clients outlive faults: they give an answer some time, then go on, with
// another replica when it is their way to wander. A write without an answer is
// recorded as unknown and never sent again.
//
// The truth is a watch of etcd itself, kept by a Recorder, which lives as long
// as the servers and serves one scenario after the other.
package traffic

// Package traffic contains the clients of a robustness test: writers change objects, readers list
// them, and watches and informers follow them. Everything that they observe is recorded as a
// history.
//
// Traffic has these states:
//
//	Start ── StopWrites ──► only following ── Stop ──► History
//
// Clients survive faults. They wait a limited time for a response and then continue, some of them
// with another replica. A write without a response is recorded as unknown and never repeated.
//
// The truth is a watch of etcd by a Recorder, which lives as long as the servers and serves all
// scenarios.
package traffic

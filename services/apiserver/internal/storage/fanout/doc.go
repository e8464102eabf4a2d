// Package fanout is the stream of storage changes for all replicas of a suite. It is the source of
// the watch cache: Load reads everything at one revision, Follow delivers the changes after it, in
// order and without gaps, and Progress requests the current revision. The server's start-up code
// creates one Fanout per process and runs it. Only this package uses NATS.
//
// # Publisher
//
// One replica, elected through the store, holds the only store watch of the suite on the root and
// publishes its changes, raw as stored. Without addresses of NATS servers the process is alone, so
// it publishes without an election. The publisher's own replica receives the
// same messages directly, under the same rules. This saves encoding, copying and decoding, and
// continues without a connection.
//
// Messages without listeners are not encoded: none without NATS servers, and no changes if no
// other replica has sent a request for 30 heartbeats. Each replica sends one every 10 heartbeats,
// and when it leaves or cannot join the stream. So a new replica is noticed immediately; until then
// heartbeats show it that it misses changes.
//
// # Chain
//
// A message is a statement about history: "these are all the changes after revision previous, up to
// and including revision". A replica that has applied everything up to revision C may apply a
// message if previous <= C < revision, taking only the changes after C. It skips a message with
// revision <= C. A message with previous > C shows a gap. Statements about the same history cannot
// disagree, so a replica may join a chain anywhere. historycheck.go describes how chains of
// different histories are kept apart, message.go the format, and metrics.go the notes about traced
// writes.
//
// # States of a replica
//
//	         gap · silence · unanswered request · lost connection ·
//	         slow consumer · damaged or withheld message · end of publisher ·
//	         another publisher · another history
//	       ┌──────────────────────────────────────────────────────────┐
//	       │                                                          ▼
//	nats or local                                           (start) store
//	       ▲                                                          │
//	       └──────────────────────────────────────────────────────────┘
//	         a chain has answered since and is alive, is at most one heartbeat
//	         behind, and a waiting message (or the next one) continues at C
//
// In state store the replica has its own store watch after C. Messages of the chain that answered
// wait in a bounded queue that drops the oldest. A fall is a change from nats or local to store because
// of a fault. A replica that falls often waits longer, with jitter, before it joins again. No state
// loses, duplicates or reorders a change. The states differ in the load of the store. A subscription that the NATS server rejects is retried
// (transport.go).
//
// # Heartbeats
//
// A publisher that has published nothing for a heartbeat interval requests the progress of its
// store watch and publishes the result as a message without changes. It does the same at the
// request of a replica. So a heartbeat proves the whole path from the store. A replica that hears
// nothing for three intervals, or gets no answer within half an interval, reads from the store.
package fanout

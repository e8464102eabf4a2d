// Package fanout is the stream of storage changes for the whole suite. It is
// the watch cache's source: Load reads everything at one revision, Follow
// delivers what happened after it, in order and without gaps, Progress asks
// for a sign of life. The server's start-up code makes one Fanout per process
// and runs it; nothing else calls the package. It alone knows NATS.
//
// # Publisher
//
// One replica, elected through the store, holds the suite's only store watch
// on the root and publishes what it delivers, raw as stored. With the embedded
// NATS server (no addresses configured) the process is alone on its server, so
// there is nobody to elect and it publishes for itself. The publisher's own
// replica does not go through NATS: it takes the same messages by hand-over,
// under the same rules, which saves it encoding, copying and decoding, and
// lets it go on when the connection is lost.
//
// What nobody hears is not encoded: nothing with the embedded server, and no
// changes when no other replica has asked for anything for 30 heartbeats. Each asks
// every 10 heartbeats, and when it leaves or cannot join the stream, so one that
// comes is heard of at once; until then heartbeats show it that it misses changes.
//
// # Chain
//
// A message is a statement about history: "these are all the changes after
// revision previous, up to and including revision". A replica that has applied
// everything up to revision C may apply a message if previous <= C < revision,
// taking only the changes after C; it skips one with revision <= C; one with
// previous > C shows a gap. As statements about the same history cannot
// disagree, it does not matter where in a chain a replica comes to it.
//
// # History
//
// A store that was restored from a backup has another history, in which revisions
// come again. What is told of the one must not follow what was told of the other,
// though some publisher may not have noticed yet, and messages may be late. So:
//
//   - A chain has a name. A replica listens to one chain at a time.
//   - A replica that has read from the store, as each does when it begins to follow,
//     asks for a look. The publisher opens its store watch anew where its chain is,
//     which fails when the store has another history (storage.Interface, Resume), and
//     drops what the watch before had for it; the first batch of the new one is the
//     proof, and the publisher answers. From that answer on, and not before, the
//     replica listens to its chain: all that it tells from there is of the history that
//     the replica has read, or of a later one.
//   - A publisher whose watch finds the store replaced gives its office up. One that
//     finds what comes next compacted begins a chain with another name.
//   - A message says what the newest change up to A was. A replica that knows of another
//     one does not apply the message, and reads from the store, which proves whose
//     history is the store's: it is then itself who has to load anew (storage.Place).
//   - A chain of a later epoch than that which is listened to is a reason to read from
//     the store and to ask, once; others are ignored.
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
// In store the replica has a store watch of its own, after C; messages of the chain
// that answered wait in a bounded queue that forgets the oldest. Who falls
// back often waits longer, with jitter, before it joins again. Neither state
// loses, doubles or reorders a change; the difference is the store's load. A
// subscription that the NATS server refuses is asked for again (ears.go).
//
// # Heartbeats
//
// A publisher that has published nothing for a heartbeat interval asks the
// store watch for its progress, and publishes the answer as a message without
// changes; so does it at a replica's request. A heartbeat therefore proves the
// whole way from the store. A replica that hears nothing for three intervals,
// or gets no answer within half a one, reads from the store.
//
// # Large messages
//
// A message holds whole revisions. One that does not fit into the server's payload
// limit (1 MiB by default) is published in parts, in order, which a replica puts
// together: one message at a time, of 16 MiB at most. A part that is lost or comes
// out of order gives the message up, which the next one shows as a gap. A revision
// that is larger still, or has more changes than a message may, and any that does
// not fit where the limit is below 1 KiB, is published as a withheld message without
// its changes, and the replicas read that stretch from the store.
//
// # Traces
//
// Where traces are made, the replica that wrote for a traced request tells so on
// binnacle.CLUSTER.traces: a header traceparent (W3C Trace Context), and the revision and
// the time of the store's answer (Unix nanoseconds), 8 bytes each, little endian. Each
// replica adds a span to that trace when it has applied the revision. Notes may be lost.
//
// # FORMAT
//
// Subjects are binnacle.CLUSTER.changes (messages below) and
// binnacle.CLUSTER.ask (requests: without content for a heartbeat, with 8 bytes that
// name it for a look), where CLUSTER is the cluster id. Whoever may publish on them is trusted with the
// content of the caches: give them to the replicas' credentials alone.
//
// All numbers are unsigned LEB128 (uvarint) of at most 63 bits unless a width
// is given. Strings and values are a length and that many bytes.
//
//	magic       2 bytes   0xB1 0x6E
//	version     1 byte    3
//	flags       1 byte    bit 0: withheld, bit 1: end, bit 2: part, bit 3: answer,
//	                      bit 4: loaded; others are 0
//	cluster     string    1..63 bytes
//	epoch       number    the store's revision after the publisher's election
//	chain       number    name of the chain, drawn when it began
//	previous    number    revision that the chain had reached before
//	last        number    revision of the newest change up to previous, but for deletions
//	                      if loaded; 0 when unknown
//	sum         4 bytes   of that change, little endian: CRC-32C of its type (1 byte),
//	                      creation revision (zigzag varint), key and value
//	advance     number    revision - previous
//	count       number    changes, at most 65,536, or requests, 1..32; 0 if withheld,
//	                      end or part
//	changes:
//	  type      1 byte    1 created, 2 updated, 3 deleted
//	  step      number    revision - that of the change before (first: previous)
//	  age       number    1 + revision - creation revision; 0 when unknown
//	  key       string    1..65,535 bytes
//	  value     string    absent for deleted
//	answer, instead of changes:
//	  request   8 bytes   for each request that is answered
//	part, instead of changes:
//	  index     number    of this part, from 0
//	  total     number    parts of the message, 2..16,384
//	  data      string    piece of a whole message in this format, not empty
//	checksum    4 bytes   CRC-32C of all before, little endian
//
// The first change has a step of at least 1 and no revision exceeds the
// message's. A message, and the whole of one in parts, is at most 16 MiB; the
// heads of its parts are those of the message. A part and an answer may be loaded, besides. The
// value before a change is not sent: the receiver has it. A receiver refuses
// another version, unknown flags and bytes left over.
package fanout

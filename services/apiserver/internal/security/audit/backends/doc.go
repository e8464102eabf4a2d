// Package backends implements the sinks of audit events: a log file and a webhook, both as a
// Backend.
//
//	Process: encode ─► shorten ─► blocking: deliver
//	                          └─► batch: queue ─► Run: collect ─► throttle ─► deliver
//
// The delivery guarantee depends on the mode:
//
//   - blocking: when Process returns, the event is delivered or counted as lost.
//   - blocking-strict: like blocking, but Process returns an error for a lost event, and
//     the request must be rejected.
//   - batch: events wait in a queue. An event that finds the queue full is counted as lost. When Run ends,
//     it delivers the queue in order, for at most defaultFlushTimeout.
//
// Lost events are always counted, and logged at most once a second.
//
// An event that is too large is shortened before it is lost: first it loses its objects, then long
// texts from the client. The queue is limited in number and bytes. Package build creates the
// backends and runs them until the last request has ended.
package backends

// Package backends has the sinks of audit events: a log file and a webhook, each behind
// the same Backend.
//
//	Process: encode ─► shorten ─► blocking: deliver
//	                          └─► batch: queue ─► Run: collect ─► throttle ─► deliver
//
// What a Backend promises hangs on its mode. In the blocking modes an event has been
// delivered, or is counted as lost, when Process returns; blocking-strict tells its
// caller, who must not go on. In the log's mode blocking one about a read may wait in a file
// beside the log instead (pending), which outlives the process. In batch mode an event waits for others; what finds no
// room is counted as lost, and what waits when Run has to end is delivered in order,
// within flushTime. What is lost is always counted and, once a second, logged.
//
// An event that is too large for where it goes loses its objects, then what its client
// can make as long as it likes, before it is lost. What waits is bounded in number and
// in bytes. Package build makes the backends, and runs them until the last request has
// ended.
package backends

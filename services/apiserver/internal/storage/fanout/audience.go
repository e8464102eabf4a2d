package fanout

import "time"

// Every announceBeats heartbeats a replica announces itself by requesting a heartbeat. A publisher
// that has received no announcement for audienceBeats heartbeats stops encoding changes.
const (
	announceBeats = 10
	audienceBeats = 3 * announceBeats
)

// audience tracks whether other replicas listen.
type audience struct {
	alone       bool   // no other process can reach the server
	lastRequest moment // of another replica
}

// note records that another replica listens, or may listen.
func (a *audience) note() { a.lastRequest.note() }

// present reports whether another replica sent a request within a time.
func (a *audience) present(within time.Duration) bool {
	return !a.alone && a.lastRequest.age() <= within
}

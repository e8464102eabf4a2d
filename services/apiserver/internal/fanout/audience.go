package fanout

import "time"

// A replica says every announceBeats heartbeats that it listens, by a request for
// one; a publisher that has heard of nobody for audienceBeats encodes no changes.
const (
	announceBeats = 10
	audienceBeats = 3 * announceBeats
)

// audience knows whether other replicas listen.
type audience struct {
	alone bool   // nobody else can reach the server
	heard moment // of somebody
}

// note that there is somebody, or may be.
func (a *audience) note() { a.heard.note() }

// present tells whether somebody was heard of within a time.
func (a *audience) present(within time.Duration) bool {
	return !a.alone && a.heard.age() <= within
}

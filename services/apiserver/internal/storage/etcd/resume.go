package etcd

import (
	"errors"

	"binnacle/services/apiserver/internal/storage"
)

// A watch that resumes requests the last known change again. If it receives something else, or
// nothing, the history is not the one delivered so far: etcd was restored from a backup and assigns
// revisions again. The check uses the same stream that continues from there, so nothing can happen
// in between.

// maxRedelivered bounds how many revisions are redelivered. It is below what etcd sends at a time, so
// all of them arrive with the first one.
const maxRedelivered = 900

// errLastCompacted ends a stream on which the last change cannot be redelivered, because it is compacted.
// Later changes may not be compacted, and that nothing changed since can still be confirmed.
var errLastCompacted = errors.New("the last change that was delivered is compacted")

// recheck makes the stream begin with the last known change, or with the oldest later revision that
// is not compacted.
func (s *stream) recheck() {
	last := s.position.Last.Revision
	from := max(last, s.compacted)
	if last == 0 || from > s.position.Revision || s.position.Revision-from > maxRedelivered {
		return
	}
	s.from, s.rechecking = from, true
}

// handleEvents handles the events of one response.
func (s *stream) handleEvents(b storage.Batch) error {
	if s.rechecking {
		events, err := s.position.Recheck(s.from, b.Events)
		if err != nil {
			return err
		}
		b.Events, s.rechecking = events, false
	}
	for len(b.Events) > 0 && b.Events[0].Revision <= s.position.Revision {
		b.Events = b.Events[1:]
	}
	if len(b.Events) > 0 {
		s.deliver(b)
	}
	return nil
}

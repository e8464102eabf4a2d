package etcd

import (
	"errors"

	"binnacle/services/apiserver/internal/storage"
)

// A watch that resumes asks for the last change that it knows of once more. When
// what comes is something else, or nothing, the history is not the one that was
// told so far: etcd was restored from a backup, and tells revisions a second time.
// As this is told on the very stream that goes on from there, nothing can come in
// between.

// maxRetold bounds how many revisions are told again: fewer than etcd sends at a
// time, so that all of them come with the first.
const maxRetold = 900

// errNotTold ends a stream on which the last change cannot be told again, because
// it is compacted. What comes next need not be, and that nothing changed since may
// still be told.
var errNotTold = errors.New("the last change that was delivered is compacted")

// recheck lets the stream begin with the last change that is known, or with the
// oldest revision behind it that is not compacted.
func (s *stream) recheck() {
	last := s.place.Last.Revision
	from := max(last, s.compacted)
	if last == 0 || from > s.place.Revision || s.place.Revision-from > maxRetold {
		return
	}
	s.from, s.rechecking = from, true
}

// handleEvents takes the events of one response.
func (s *stream) handleEvents(b storage.Batch) error {
	if s.rechecking {
		events, err := s.place.Recheck(s.from, b.Events)
		if err != nil {
			return err
		}
		b.Events, s.rechecking = events, false
	}
	for len(b.Events) > 0 && b.Events[0].Revision <= s.place.Revision {
		b.Events = b.Events[1:]
	}
	if len(b.Events) > 0 {
		s.deliver(b)
	}
	return nil
}

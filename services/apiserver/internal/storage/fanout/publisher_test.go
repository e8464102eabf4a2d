package fanout

import (
	"context"
	"testing"

	"binnacle/services/apiserver/internal/storage"
)

// historian is a fakeStore that tells its history.
type historian struct{ *fakeStore }

func (h historian) Changes(_ context.Context, _ string, after, until int64, _ int) (storage.Batch, bool, error) {
	b := storage.Batch{Revision: until}
	for _, e := range h.since(after) {
		if e.Revision <= until {
			b.Events = append(b.Events, e)
		}
	}
	if after+1 < h.compacted {
		return storage.Batch{}, true, &storage.CompactedError{Oldest: h.compacted}
	}
	return b, true, nil
}

// TestPublisherKnowsTheLastChange: where a new publisher begins it knows what was before, if it
// can be read and is near: who stands there goes on with the stream, and has not to ask the store.
func TestPublisherKnowsTheLastChange(t *testing.T) {
	for name, c := range map[string]struct {
		later   int // revisions of others
		compact bool
		blind   bool
		known   bool
	}{
		"at the newest revision":    {known: true},
		"some revisions before":     {later: lookedBack - 1, known: true},
		"many revisions before":     {later: lookedBack},
		"compacted":                 {later: 10, compact: true},
		"a store without historian": {blind: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeStore()
			s.write(1, 100)
			last := s.write(2, 100)
			for range c.later {
				s.bump()
			}
			if c.compact {
				s.compact()
			}
			s.write(1, 100) // after what the publisher has seen
			newest := s.newest() - 1
			f := &Fanout{store: historian{s}, root: testRoot}
			if c.blind {
				f.store = s
			}
			got := f.start(t.Context(), newest)
			want := storage.Place{Revision: newest}
			if c.known {
				events := s.since(last - 1)
				want.Last, want.Quiet = storage.MarkOf(&events[1]), true
			}
			if got != want {
				t.Errorf("it begins at %+v, want %+v", got, want)
			}
		})
	}
}

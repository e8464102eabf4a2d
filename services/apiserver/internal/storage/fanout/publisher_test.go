package fanout

import (
	"context"
	"testing"

	"binnacle/services/apiserver/internal/storage"
)

// historyStore is a fakeStore that implements storage.HistoryReader.
type historyStore struct{ *fakeStore }

func (h historyStore) Changes(_ context.Context, _ string, after, until int64, _ int) (storage.Batch, bool, error) {
	b := storage.Batch{Revision: until}
	for _, e := range h.historySince(after) {
		if e.Revision <= until {
			b.Events = append(b.Events, e)
		}
	}
	if after+1 < h.compacted {
		return storage.Batch{}, true, &storage.CompactedError{OldestRevision: h.compacted}
	}
	return b, true, nil
}

// TestPublisherStatesLastChange checks that a new publisher states the last change before its
// start, if that is recent and not compacted. Replicas at that position can then continue with the
// stream without reading the store.
func TestPublisherStatesLastChange(t *testing.T) {
	for name, test := range map[string]struct {
		later   int  // revisions outside the root after the last change
		compact bool // compact the history up to these revisions
		blind   bool // the store cannot read history
		known   bool // want the last change in the position
	}{
		"at the newest revision":           {known: true},
		"some revisions before":            {later: maxLookback - 1, known: true},
		"many revisions before":            {later: maxLookback},
		"compacted":                        {later: 10, compact: true},
		"a store that cannot read history": {blind: true},
	} {
		t.Run(name, func(t *testing.T) {
			fakeStore := newFakeStore()
			fakeStore.write(1, 100)
			last := fakeStore.write(2, 100)
			for range test.later {
				fakeStore.writeOutsideRoot()
			}
			if test.compact {
				fakeStore.compact()
			}
			fakeStore.write(1, 100) // after the start of the publisher
			newest := fakeStore.newest() - 1
			f := &Fanout{store: historyStore{fakeStore}, root: testRoot}
			if test.blind {
				f.store = fakeStore
			}
			got := f.chainStart(t.Context(), newest)
			want := storage.Position{Revision: newest}
			if test.known {
				events := fakeStore.historySince(last - 1)
				want.Last = storage.ChangeIDOf(&events[1])
				want.Unchanged = true
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

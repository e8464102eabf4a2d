package storagetest

import (
	"binnacle/services/apiserver/internal/storage"
)

// checkedWatch is a watch under test. It checks each batch against the guarantees of all watches.
type checkedWatch struct {
	*suite
	storage.Watcher
	last int64
	// idle means that the last batch was only progress.
	idle bool
}

// watch starts a watch that ends with the test.
func (s *suite) watch(prefix string, after int64) *checkedWatch {
	s.Helper()
	w, err := s.store.Watch(s.ctx, prefix, after)
	if err != nil {
		s.Fatalf("watch: %v", err)
	}
	s.Cleanup(w.Stop)
	return &checkedWatch{suite: s, Watcher: w, last: after}
}

// nextBatch receives a batch. Its revisions must continue the earlier ones in order, and end with
// the batch's own.
func (w *checkedWatch) nextBatch() storage.Batch {
	w.Helper()
	select {
	case batch, ok := <-w.Batches():
		if !ok {
			w.Fatalf("watch ended: %v", w.Err())
		}
		previous := w.last
		for _, e := range batch.Events {
			if e.Revision <= w.last || e.Revision < previous {
				w.Fatalf("event at %d after a batch up to %d and an event at %d", e.Revision, w.last, previous)
			}
			previous = e.Revision
		}
		if batch.Revision < previous {
			w.Fatalf("batch up to %d has an event at %d", batch.Revision, previous)
		}
		w.last = batch.Revision
		return batch
	case <-w.ctx.Done():
		w.Fatalf("no batch after revision %d", w.last)
	}
	return storage.Batch{}
}

// nextEvents receives batches until there are n events.
func (w *checkedWatch) nextEvents(n int) []storage.Event {
	w.Helper()
	var events []storage.Event
	for len(events) < n {
		events = append(events, w.nextBatch().Events...)
	}
	if len(events) > n {
		w.Fatalf("got %d events, want %d: %+v", len(events), n, events)
	}
	for i := range events {
		events[i].Seal = nil // the stored form is irrelevant
	}
	return events
}

// awaitEnd waits for the end and returns the reason.
func (w *checkedWatch) awaitEnd() error {
	w.Helper()
	for {
		select {
		case _, ok := <-w.Batches():
			if !ok {
				return w.Err()
			}
		case <-w.ctx.Done():
			w.Fatal("watch did not end")
		}
	}
}

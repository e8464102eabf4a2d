package storagetest

import (
	"errors"
	"fmt"
	"strings"

	"binnacle/services/apiserver/internal/storage"
)

var positionTests = []test{
	{"VerifyHistoryReturnsNewestRevision", func(s *suite) {
		at := s.currentPosition()
		for i := range 3 {
			rev := s.create(podKey(i), "v")
			if got, err := s.store.VerifyHistory(s.ctx, at); err != nil || got != rev {
				s.Fatalf("VerifyHistory(%+v) = %d, %v, want %d", at, got, err, rev)
			}
		}
	}},
	{"VerifyHistoryComparesRevisionsInCompactedHistory", func(s *suite) {
		at := storage.Position{Revision: s.create(podKey(0), "v")}
		at.Last = s.changeIDs(at.Revision - 1)[0]
		at.Last.Sum++ // the compacted change cannot be compared, so another value is not noticed
		newest := s.update(podKey(0), "w", at.Revision)
		if err := s.store.Compact(s.ctx, newest); err != nil {
			s.Fatal(err)
		}
		if got, err := s.store.VerifyHistory(s.ctx, at); err != nil || got != newest {
			s.Errorf("VerifyHistory(%+v) = %d, %v, want %d", at, got, err, newest)
		}
		at.Revision = newest + 1
		if _, err := s.store.VerifyHistory(s.ctx, at); !isReplaced(err) {
			s.Errorf("VerifyHistory(%+v) beyond the newest revision = %v, want ReplacedError", at, err)
		}
	}},
	{"ResumeContinuesAtPosition", func(s *suite) {
		created := s.create(podKey(0), "v")
		updated := s.update(podKey(0), "w", created)
		for _, change := range s.changeIDs(created - 1) {
			w := s.resume(positionAfterEvent(change))
			s.wantProgress(w, updated)
			w.Stop()
		}
		deleted := s.delete(podKey(0), updated)
		w := s.resume(storage.Position{Revision: updated, Last: s.changeIDs(created)[0], Unchanged: true})
		if got := w.firstEvent(); got.Revision != deleted {
			s.Errorf("resumed with %+v, want revision %d", got, deleted)
		}
	}},
	{"ResumeDetectsAnotherHistory", func(s *suite) {
		created := s.create(podKey(0), "v")
		s.delete(podKey(0), created)
		large := s.create(podKey(1), strings.Repeat("v", 1<<20))
		for name, at := range s.foreignPositions(created, large) {
			if err := s.resume(at).awaitEnd(); !isReplaced(err) {
				s.Errorf("%s: got %v, want ReplacedError", name, err)
			}
		}
	}},
	{"ResumeAfterLoadDeliversOnlyNewEvents", func(s *suite) {
		first := s.create(podKey(0), "v")
		second := s.create(podKey(1), "v")
		s.delete(podKey(0), first)
		at := storage.Position{Revision: s.revision(), Last: s.changeIDs(second - 1)[0]}
		third := s.create(podKey(2), "v")
		if got := s.resume(at).firstEvent(); got.Revision != third {
			s.Errorf("resumed with %+v, want revision %d", got, third)
		}
	}},
	{"ResumeDetectsChangesMissingFromLoad", func(s *suite) {
		first := s.create(podKey(0), "v")
		second := s.create(podKey(1), "v")
		last := s.changeIDs(first - 1)[0]
		at := storage.Position{Revision: second, Last: last, ReadAt: second}
		if err := s.resume(at).awaitEnd(); !isReplaced(err) {
			s.Errorf("value that was not read: got %v, want ReplacedError", err)
		}
		at.Revision = s.delete(podKey(1), second)
		if err := s.resume(at).awaitEnd(); !isReplaced(err) {
			s.Errorf("deletion after the load: got %v, want ReplacedError", err)
		}
		at.ReadAt = at.Revision
		next := s.create(podKey(2), "v")
		if got := s.resume(at).firstEvent(); got.Revision != next {
			s.Errorf("deletion before the load: resumed with %+v, want revision %d", got, next)
		}
	}},
	{"ResumeDetectsChangesAfterCompactedHistory", func(s *suite) {
		first := s.create(podKey(0), "v")
		second := s.create(podKey(1), "v")
		third := s.create(podKey(2), "v")
		at := storage.Position{Revision: third, Last: s.changeIDs(first - 1)[0], Unchanged: true}
		if err := s.store.Compact(s.ctx, second); err != nil {
			s.Fatal(err)
		}
		if err := s.resume(at).awaitEnd(); !isReplaced(err) {
			s.Errorf("Resume(%+v) ended with %v, want ReplacedError", at, err)
		}
	}},
	{"ResumeContinuesAtCompactionAndFailsBefore", func(s *suite) {
		created := s.create(podKey(0), "v")
		at := positionAfterEvent(s.changeIDs(created - 1)[0])
		if err := s.store.Compact(s.ctx, created); err != nil {
			s.Fatal(err)
		}
		w := s.resume(at)
		updated := s.update(podKey(0), "w", created)
		if got := w.firstEvent(); got.Revision != updated {
			s.Errorf("resumed with %+v, want revision %d", got, updated)
		}
		s.update(podKey(0), "x", updated)
		if err := s.store.Compact(s.ctx, s.revision()); err != nil {
			s.Fatal(err)
		}
		var compacted *storage.CompactedError
		if err := s.resume(at).awaitEnd(); !errors.As(err, &compacted) {
			s.Errorf("from compacted history: got %v, want CompactedError", err)
		}
	}},
}

// replacedTests apply to stores that can be replaced while in use.
var replacedTests = []test{
	{"VerifyHistoryDetectsAnotherHistory", func(s *suite) {
		a := s.create(podKey(0), "v")
		s.delete(podKey(0), a)
		large := s.create(podKey(1), strings.Repeat("v", 1<<20))
		for name, at := range s.foreignPositions(a, large) {
			_, err := s.store.VerifyHistory(s.ctx, at)
			if !isReplaced(err) {
				s.Errorf("%s: got %v, want ReplacedError", name, err)
			}
		}
		wrong := storage.Position{Revision: large, Last: storage.ChangeID{Key: podKey(1), Revision: a, Sum: 1}, Unchanged: true}
		if _, err := s.store.VerifyHistory(s.ctx, wrong); !isReplaced(err) {
			s.Errorf("key that changed since: got %v, want ReplacedError", err)
		}
		for _, change := range s.changeIDs(a - 1) {
			at := positionAfterEvent(change)
			if _, err := s.store.VerifyHistory(s.ctx, at); err != nil {
				s.Errorf("VerifyHistory(%+v) = %v, want no error", at, err)
			}
		}
	}},
}

// positionAfterEvent returns the position of a watcher that has received nothing after a change.
func positionAfterEvent(change storage.ChangeID) storage.Position {
	return storage.Position{Revision: change.Revision, Last: change, Unchanged: true}
}

// foreignPositions returns positions that are not in the store's history, by description. In that
// history a key was created at revision a and deleted at the next one, and a value was written at
// revision large.
func (s *suite) foreignPositions(createdAt, largeWrittenAt int64) map[string]storage.Position {
	changes := s.changeIDs(createdAt - 1)
	created, deleted, largeChange := changes[0], changes[1], changes[2]
	otherValue := created
	otherValue.Sum++
	positions := map[string]storage.Position{
		"another value":            {Revision: created.Revision, Last: otherValue, Unchanged: true},
		"another value, deleted":   {Revision: largeWrittenAt, Last: otherValue},
		"beyond the end":           {Revision: largeWrittenAt + 5, Last: largeChange, Unchanged: true},
		"a change beyond the end":  {Revision: largeWrittenAt + 5, Last: storage.ChangeID{Key: podKey(0), Revision: largeWrittenAt + 5}, Unchanged: true},
		"a key that did not exist": {Revision: createdAt, Last: storage.ChangeID{Key: podKey(7), Revision: createdAt, Sum: 1}, Unchanged: true},
		"a deletion that did not happen": {
			Revision:  createdAt,
			Last:      storage.ChangeID{Key: created.Key, Revision: createdAt, Deleted: true, Sum: deleted.Sum},
			Unchanged: true,
		},
	}
	if res, err := s.store.List(s.ctx, "/registry/", storage.ListOptions{Limit: 1}); err == nil && res.Store != 0 {
		positions["another store"] = storage.Position{Revision: largeWrittenAt, Last: largeChange, Unchanged: true, Store: res.Store + 1}
	}
	return positions
}

// changeIDs returns the ids of the changes after a revision.
func (s *suite) changeIDs(after int64) (out []storage.ChangeID) {
	s.Helper()
	watch := s.watch("/registry/", after)
	defer watch.Stop()
	for newest := s.revision(); watch.last < newest; {
		b := watch.nextBatch()
		for i := range b.Events {
			out = append(out, storage.ChangeIDOf(&b.Events[i]))
		}
	}
	return out
}

// currentPosition returns the position after a list of all keys.
func (s *suite) currentPosition() storage.Position {
	s.Helper()
	res, err := s.store.List(s.ctx, "/registry/", storage.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	p := storage.Position{Revision: res.Revision, Store: res.Store}
	for i := range res.Items {
		p.ObserveLoaded(&res.Items[i])
	}
	return p
}

// resume starts a watch from a position. It ends with the test.
func (s *suite) resume(at storage.Position) *checkedWatch {
	s.Helper()
	w, err := s.store.Resume(s.ctx, "/registry/", at)
	if err != nil {
		s.Fatal(fmt.Errorf("resume: %w", err))
	}
	s.Cleanup(w.Stop)
	return &checkedWatch{suite: s, Watcher: w, last: at.Revision}
}

// isReplaced reports whether err is a *storage.ReplacedError.
func isReplaced(err error) bool {
	var r *storage.ReplacedError
	return errors.As(err, &r)
}

// firstEvent returns the first event of a pod of the tests. It skips other keys, because a backend may
// write a key of its own to learn its progress.
func (w *checkedWatch) firstEvent() storage.Event {
	w.Helper()
	for {
		for _, e := range w.nextBatch().Events {
			if strings.HasPrefix(e.Key, "/registry/pods/ns/") {
				return e
			}
		}
	}
}

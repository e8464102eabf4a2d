package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

var writeTests = []test{
	{"RevisionsGrow", func(s *suite) {
		a := s.create("/registry/pods/a", "v")
		b := s.create("/registry/services/b", "v")
		a2 := s.update("/registry/pods/a", "v2", a)
		d := s.delete("/registry/services/b", b)
		if !(a < b && b < a2 && a2 < d) {
			s.Fatalf("revisions %d, %d, %d, %d do not grow", a, b, a2, d)
		}
	}},
	{"CreateOfExistingKeyFails", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		_, err := s.store.Create(s.ctx, "/registry/pods/a", []byte("v2"), storage.WriteOptions{})
		var exists *storage.ExistsError
		if !errors.As(err, &exists) || exists.Key != "/registry/pods/a" {
			s.Fatalf("got %v, want ExistsError", err)
		}
		s.wantNewest("/registry/pods/a", "v1", rev)
	}},
	{"CreateAfterDelete", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		s.delete("/registry/pods/a", rev)
		again := s.create("/registry/pods/a", "v2")
		kv, _, err := s.store.Get(s.ctx, "/registry/pods/a", 0)
		if err != nil || kv.CreateRevision != again || kv.ModRevision != again {
			s.Fatalf("got %+v, %v, want created at %d", kv, err, again)
		}
	}},
	{"UpdateAtOtherRevisionConflicts", func(s *suite) {
		first := s.create("/registry/pods/a", "v1")
		second := s.update("/registry/pods/a", "v2", first)
		live := storage.KeyValue{Key: "/registry/pods/a", Value: []byte("v2"), ModRevision: second, CreateRevision: first}
		for _, expected := range []int64{first, second + 1, 0, -1} {
			_, err := s.store.Update(s.ctx, "/registry/pods/a", []byte("v3"), expected, storage.WriteOptions{})
			s.wantConflict(err, live)
		}
		s.wantNewest("/registry/pods/a", "v2", second)
	}},
	{"UpdateOfMissingKeyFails", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		for _, expected := range []int64{0, rev} {
			_, err := s.store.Update(s.ctx, "/registry/pods/b", []byte("v"), expected, storage.WriteOptions{})
			s.wantNotFound(err)
		}
		if got := s.revision(); got != rev {
			s.Fatalf("rejected updates moved the revision from %d to %d", rev, got)
		}
	}},
	{"DeleteAtOtherRevisionConflicts", func(s *suite) {
		first := s.create("/registry/pods/a", "v1")
		second := s.update("/registry/pods/a", "v2", first)
		live := storage.KeyValue{Key: "/registry/pods/a", Value: []byte("v2"), ModRevision: second, CreateRevision: first}
		for _, expected := range []int64{first, 0} {
			_, err := s.store.Delete(s.ctx, "/registry/pods/a", expected)
			s.wantConflict(err, live)
		}
		s.wantNewest("/registry/pods/a", "v2", second)
	}},
	{"DeleteOfMissingKeyFails", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		s.delete("/registry/pods/a", rev)
		for _, expected := range []int64{0, rev} {
			_, err := s.store.Delete(s.ctx, "/registry/pods/a", expected)
			s.wantNotFound(err)
		}
	}},
	{"DeleteKeepsLongerKeys", func(s *suite) {
		rev := s.create("/registry/pods/a", "v")
		other := s.create("/registry/pods/ab", "v")
		s.delete("/registry/pods/a", rev)
		s.wantNewest("/registry/pods/ab", "v", other)
	}},
	{"RejectsTooLargeValue", func(s *suite) {
		value := bytes.Repeat([]byte("x"), 8<<20)
		if _, err := s.store.Create(s.ctx, "/registry/pods/a", value, storage.WriteOptions{}); !errors.Is(err, storage.ErrTooLarge) {
			s.Fatalf("create: got %v, want too large", err)
		}
		rev := s.create("/registry/pods/a", "small")
		if _, err := s.store.Update(s.ctx, "/registry/pods/a",
			value, rev, storage.WriteOptions{}); !errors.Is(err, storage.ErrTooLarge) {
			s.Fatalf("update: got %v, want too large", err)
		}
		s.wantNewest("/registry/pods/a", "small", rev)
	}},
	{"StoresLargeValue", func(s *suite) {
		value := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
		rev := s.create("/registry/pods/a", value)
		s.wantNewest("/registry/pods/a", value, rev)
	}},
	{"WritesWithPreconditions", writesWithPreconditions},
	{"NoUpdateIsLost", noUpdateIsLost},
	{"OneCreatorWins", oneCreatorWins},
	{"ExpiredValueIsDeleted", expiredValueIsDeleted},
}

// writesWithPreconditions checks that preconditions are evaluated together with the
// write. Errors about the written key take precedence.
func writesWithPreconditions(s *suite) {
	const key = "/registry/things/a"
	definition := s.create("/registry/definitions/things", "v1")
	s.update("/registry/definitions/things", "v2", definition) // changes no precondition
	rev := s.create(key, "v1")
	none := storage.Precondition{Key: "/registry/others/", Prefix: true}
	exists := storage.Precondition{Key: "/registry/definitions/things", CreateRevision: definition}
	for name, testCase := range map[string]struct {
		preconditions []storage.Precondition
		hold          bool
	}{
		"all hold": {
			preconditions: []storage.Precondition{exists, none},
			hold:          true,
		},
		"the key has another create revision": {
			preconditions: []storage.Precondition{none, {Key: exists.Key, CreateRevision: rev}},
		},
		"the key is absent": {
			preconditions: []storage.Precondition{none, {Key: "/registry/definitions/absent", CreateRevision: definition}},
		},
		"the key exists but must not": {
			preconditions: []storage.Precondition{{Key: exists.Key}},
		},
		"a key exists below the prefix": {
			preconditions: []storage.Precondition{exists, {Key: "/registry/definitions/", Prefix: true}},
		},
		"only a longer key exists": {
			preconditions: []storage.Precondition{{Key: "/registry/definitions/thing"}},
			hold:          true,
		},
	} {
		wantPreconditionError := func(subject string, err error) {
			s.Helper()
			if precondition := new(storage.PreconditionError); !errors.As(err, &precondition) {
				s.Errorf("%s, %s: got %v, want PreconditionError", name, subject, err)
			}
		}
		writeOptions := storage.WriteOptions{Preconditions: testCase.preconditions}
		before := s.revision()
		_, err := s.store.Create(s.ctx, key, []byte("other"), writeOptions)
		if existing := new(storage.ExistsError); !errors.As(err, &existing) {
			s.Errorf("%s: create existing key: got %v", name, err)
		}
		_, err = s.store.Update(s.ctx, key, []byte("other"), rev+1000, writeOptions)
		if conflict := new(storage.ConflictError); !errors.As(err, &conflict) {
			s.Errorf("%s: update at another revision: got %v", name, err)
		}
		if !testCase.hold {
			_, err := s.store.Create(s.ctx, key+"b", []byte("b"), writeOptions)
			wantPreconditionError("create", err)
			_, err = s.store.Update(s.ctx, key, []byte("other"), rev, writeOptions)
			wantPreconditionError("update", err)
			_, err = s.store.Delete(s.ctx, key, rev, testCase.preconditions...)
			wantPreconditionError("delete", err)
			if now := s.revision(); now != before {
				s.Errorf("%s: got revision %d, want %d", name, now, before)
			}
			continue
		}
		created, err := s.store.Create(s.ctx, key+"b", []byte("b"), writeOptions)
		if err != nil {
			s.Fatalf("%s: create: %v", name, err)
		}
		if created, err = s.store.Update(s.ctx, key+"b", []byte("c"), created, writeOptions); err != nil {
			s.Fatalf("%s: update: %v", name, err)
		}
		if _, err = s.store.Delete(s.ctx, key+"b", created, testCase.preconditions...); err != nil {
			s.Errorf("%s: delete: %v", name, err)
		}
	}
}

// noUpdateIsLost checks that concurrent increments by compare-and-swap add up if each attempt
// starts from the live value of the previous conflict.
func noUpdateIsLost(s *suite) {
	const workers, increments = 8, 25
	rev := s.create("/registry/pods/counter", "0")
	start := storage.KeyValue{Value: []byte("0"), ModRevision: rev}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			live := start
			for done := 0; done < increments; {
				count, err := strconv.Atoi(string(live.Value))
				if err != nil {
					s.Error(err)
					return
				}
				next := []byte(strconv.Itoa(count + 1))
				rev, err := s.store.Update(s.ctx, "/registry/pods/counter", next, live.ModRevision, storage.WriteOptions{})
				var conflict *storage.ConflictError
				switch {
				case err == nil:
					done++
					live = storage.KeyValue{Value: next, ModRevision: rev}
				case errors.As(err, &conflict):
					live = conflict.Live
				default:
					s.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.wantNewest("/registry/pods/counter", strconv.Itoa(workers*increments), rev+workers*increments)
}

// oneCreatorWins checks that one of several concurrent creations of a key succeeds.
func oneCreatorWins(s *suite) {
	for round := range 20 {
		var wg sync.WaitGroup
		won := make(chan int64, 4)
		for creator := range 4 {
			wg.Go(func() {
				rev, err := s.store.Create(s.ctx, podKey(round), []byte(fmt.Sprint(creator)), storage.WriteOptions{})
				var exists *storage.ExistsError
				if err == nil {
					won <- rev
				} else if !errors.As(err, &exists) {
					s.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			s.Fatalf("%d of 4 creations of the same key succeeded", len(won))
		}
	}
}

// expiredValueIsDeleted checks that an expired value is deleted like any other, visible to watchers.
// Values that share its lease do not expire early, and an update determines again whether the
// value expires.
func expiredValueIsDeleted(s *suite) {
	watch := s.watch("/registry/events/", 0)
	updated, err := s.store.Create(s.ctx, "/registry/events/updated", []byte("v1"), storage.WriteOptions{TTL: time.Second})
	if err != nil {
		s.Fatal(err)
	}
	updated = s.update("/registry/events/updated", "v2", updated)
	var last int64
	for i := range 3 {
		rev, err := s.store.Create(s.ctx, fmt.Sprintf("/registry/events/e%d", i), []byte("v"), storage.WriteOptions{TTL: time.Second})
		if err != nil {
			s.Fatal(err)
		}
		last = rev
	}
	longLived, err := s.store.Create(s.ctx, "/registry/events/long", []byte("v"), storage.WriteOptions{TTL: time.Hour})
	if err != nil {
		s.Fatal(err)
	}
	retained := s.create("/registry/events/kept", "v")
	expired := map[string]bool{}
	for len(expired) < 3 {
		for _, e := range watch.nextBatch().Events {
			if e.Type != storage.Deleted {
				continue
			}
			if e.Revision <= last || e.Value != nil || e.CreateRevision != 0 {
				s.Fatalf("got expiry event %+v, want a deletion after %d without a value", e, last)
			}
			expired[e.Key] = true
		}
	}
	if !expired["/registry/events/e0"] || !expired["/registry/events/e1"] || !expired["/registry/events/e2"] {
		s.Fatalf("got expired keys %v, want e0, e1 and e2", expired)
	}
	s.wantNewest("/registry/events/kept", "v", retained)
	s.wantNewest("/registry/events/long", "v", longLived)
	s.wantNewest("/registry/events/updated", "v2", updated)
}

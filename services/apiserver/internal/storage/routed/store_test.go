package routed_test

import (
	"errors"
	"testing"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
	"binnacle/services/apiserver/internal/storage/routed"
)

// TestEachKeyHasItsStore: for every operation, and for nothing else.
func TestEachKeyHasItsStore(t *testing.T) {
	main, other := etcdtest.Embedded(t), etcdtest.Embedded(t)
	s := &routed.Store{Interface: main, Others: map[string]storage.Interface{"/registry/events/": other, "/registry/example.com/wids/": other}}
	for key, elsewhere := range map[string]bool{
		"/registry/events/default/e": true, "/registry/events/x": true, "/registry/example.com/wids/a/b": true,
		"/registry/eventsx/default/e": false, "/registry/pods/events/e": false, "/registry/example.com/gadgets/a": false, "/registry/events": false, "events/": false,
	} {
		t.Run(key, func(t *testing.T) {
			has, lacks := storage.Interface(main), storage.Interface(other)
			if elsewhere {
				has, lacks = lacks, has
			}
			before, err := lacks.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			rev, err := s.Create(t.Context(), key, []byte("1"), storage.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := s.Watch(t.Context(), key, rev)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if rev, err = s.Update(t.Context(), key, []byte("2"), rev, storage.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if kv, _, err := has.Get(t.Context(), key, 0); err != nil || string(kv.Value) != "2" {
				t.Errorf("its store has %q, %v", kv.Value, err)
			}
			for b := range w.Batches() {
				if len(b.Events) > 0 {
					if b.Events[0].Revision != rev {
						t.Errorf("watched %+v, wrote %d", b.Events[0], rev)
					}
					break
				}
			}
			if kv, _, err := s.Get(t.Context(), key, 0); err != nil || string(kv.Value) != "2" {
				t.Errorf("read %q, %v", kv.Value, err)
			}
			if l, err := s.List(t.Context(), key, storage.ListOptions{}); err != nil || len(l.Items) != 1 {
				t.Errorf("listed %+v, %v", l.Items, err)
			}
			if _, err := s.Delete(t.Context(), key, rev); err != nil {
				t.Error(err)
			}
			if _, _, err := has.Get(t.Context(), key, 0); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("it is still there: %v", err)
			}
			if after, err := lacks.Revision(t.Context()); err != nil || after != before {
				t.Errorf("the other store is at %d after %d, %v", after, before, err)
			}
		})
	}
	if at, err := s.Revision(t.Context()); err != nil {
		t.Error(err)
	} else if want, err := main.Revision(t.Context()); err != nil || at != want {
		t.Errorf("it is at %d, the main one at %d, %v", at, want, err)
	}
}

// TestPremisesElsewhere are not looked at: no transaction goes over several stores.
func TestPremisesElsewhere(t *testing.T) {
	main, other := etcdtest.Embedded(t), etcdtest.Embedded(t)
	s := &routed.Store{Interface: main, Others: map[string]storage.Interface{"/registry/events/": other}}
	gone, here := storage.Premise{Key: "/registry/a", CreateRevision: 1 << 30}, storage.Premise{Key: "/registry/events/", Prefix: true}
	while := []storage.Premise{gone, here}
	o := storage.WriteOptions{While: while}
	rev, err := s.Create(t.Context(), "/registry/events/e", []byte("1"), o)
	if err != nil {
		t.Fatal(err)
	}
	premise := new(storage.PremiseError)
	if _, err := s.Update(t.Context(), "/registry/events/e", []byte("2"), rev, o); !errors.As(err, &premise) {
		t.Errorf("what does not hold in its own store: %v", err)
	}
	if _, err := s.Delete(t.Context(), "/registry/events/e", rev, gone); err != nil {
		t.Error(err)
	}
	if _, err := s.Create(t.Context(), "/registry/b", []byte("1"), o); !errors.As(err, &premise) {
		t.Errorf("what does not hold in the main store: %v", err)
	}
	if while[0] != gone || while[1] != here {
		t.Errorf("the premises are %+v now", while)
	}
}

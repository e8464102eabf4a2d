package routed_test

import (
	"errors"
	"testing"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
	"binnacle/services/apiserver/internal/storage/routed"
)

// TestEachOperationUsesStoreOfItsKey checks that all operations use the store of the key and no other one.
func TestEachOperationUsesStoreOfItsKey(t *testing.T) {
	main := etcdtest.Embedded(t)
	other := etcdtest.Embedded(t)
	store := &routed.Store{
		Interface: main,
		ByPrefix:  map[string]storage.Interface{"/registry/events/": other, "/registry/example.com/wids/": other},
	}
	for key, elsewhere := range map[string]bool{
		"/registry/events/default/e":      true,
		"/registry/events/x":              true,
		"/registry/example.com/wids/a/b":  true,
		"/registry/eventsx/default/e":     false,
		"/registry/pods/events/e":         false,
		"/registry/example.com/gadgets/a": false,
		"/registry/events":                false,
		"events/":                         false,
	} {
		t.Run(key, func(t *testing.T) {
			own := storage.Interface(main)
			foreign := storage.Interface(other)
			if elsewhere {
				own, foreign = foreign, own
			}
			before, err := foreign.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			rev, err := store.Create(t.Context(), key, []byte("1"), storage.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := store.Watch(t.Context(), key, rev)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if rev, err = store.Update(t.Context(), key, []byte("2"), rev, storage.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if kv, _, err := own.Get(t.Context(), key, 0); err != nil || string(kv.Value) != "2" {
				t.Errorf("store of the key: got %q, %v, want 2", kv.Value, err)
			}
			for b := range w.Batches() {
				if len(b.Events) > 0 {
					if b.Events[0].Revision != rev {
						t.Errorf("got event %+v, want revision %d", b.Events[0], rev)
					}
					break
				}
			}
			if kv, _, err := store.Get(t.Context(), key, 0); err != nil || string(kv.Value) != "2" {
				t.Errorf("got %q, %v, want 2", kv.Value, err)
			}
			if l, err := store.List(t.Context(), key, storage.ListOptions{}); err != nil || len(l.Items) != 1 {
				t.Errorf("got list %+v, %v, want one item", l.Items, err)
			}
			if _, err := store.Delete(t.Context(), key, rev); err != nil {
				t.Error(err)
			}
			if _, _, err := own.Get(t.Context(), key, 0); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("deleted key: got %v, want ErrNotFound", err)
			}
			if after, err := foreign.Revision(t.Context()); err != nil || after != before {
				t.Errorf("other store: got revision %d, %v, want %d", after, err, before)
			}
		})
	}
	if at, err := store.Revision(t.Context()); err != nil {
		t.Error(err)
	} else if want, err := main.Revision(t.Context()); err != nil || at != want {
		t.Errorf("got revision %d, main store at %d, %v", at, want, err)
	}
}

// TestPreconditionsOfOtherStoresAreIgnored checks that preconditions on keys of other stores are
// ignored, because no transaction spans several stores.
func TestPreconditionsOfOtherStoresAreIgnored(t *testing.T) {
	main := etcdtest.Embedded(t)
	other := etcdtest.Embedded(t)
	store := &routed.Store{Interface: main, ByPrefix: map[string]storage.Interface{"/registry/events/": other}}
	otherStoreKey := storage.Precondition{Key: "/registry/a", CreateRevision: 1 << 30}
	absentPrefix := storage.Precondition{Key: "/registry/events/", Prefix: true}
	preconditions := []storage.Precondition{otherStoreKey, absentPrefix}
	writeOptions := storage.WriteOptions{Preconditions: preconditions}
	rev, err := store.Create(t.Context(), "/registry/events/e", []byte("1"), writeOptions)
	if err != nil {
		t.Fatal(err)
	}
	precondition := new(storage.PreconditionError)
	if _, err := store.Update(t.Context(), "/registry/events/e", []byte("2"), rev, writeOptions); !errors.As(err, &precondition) {
		t.Errorf("failing precondition in the store of the key: got %v, want PreconditionError", err)
	}
	if _, err := store.Delete(t.Context(), "/registry/events/e", rev, otherStoreKey); err != nil {
		t.Error(err)
	}
	if _, err := store.Create(t.Context(), "/registry/b", []byte("1"), writeOptions); !errors.As(err, &precondition) {
		t.Errorf("failing precondition in the main store: got %v, want PreconditionError", err)
	}
	if preconditions[0] != otherStoreKey || preconditions[1] != absentPrefix {
		t.Errorf("got preconditions %+v, want them unchanged", preconditions)
	}
}

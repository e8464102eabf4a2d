package definition_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// thingsPrefix is the prefix of the keys of instances.
const thingsPrefix = "/registry/example.com/things/"

// deletionTime is the time at which tests delete instances.
var deletionTime = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// putThing stores a custom resource with the given members of metadata.
func putThing(t *testing.T, store storage.Interface, key, metadata string) {
	t.Helper()
	value := `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{` + metadata + `},"spec":{"a":[1.0,{"metadata":{}}]}}`
	if _, err := store.Create(context.Background(), key, []byte(value), storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestStoredInstancesAreCountedAndDeleted checks that Delete removes the objects without
// finalizers, sets the deletion timestamp of the others, and does not write that of a terminating
// object again.
func TestStoredInstancesAreCountedAndDeleted(t *testing.T) {
	ctx := context.Background()
	store := etcdtest.Embedded(t)
	stored := &definition.StoredInstances{Store: store, Root: "/registry", Now: func() time.Time { return deletionTime }}
	// 1. Store 1100 objects without finalizers, which is more than two pages, and one each: with a
	// finalizer, terminating, and terminating without a finalizer. The last key only looks similar.
	for i := range 1100 {
		putThing(t, store, fmt.Sprintf("%sns/free-%04d", thingsPrefix, i), `"name":"free","generation":1`)
	}
	putThing(t, store, thingsPrefix+"ns/held",
		`"creationTimestamp":"2020-01-01T00:00:00Z","finalizers":["a/b"],"generation":1,"name":"held"`)
	putThing(t, store, thingsPrefix+"ns/marked", `"deletionTimestamp":"2020-01-01T00:00:00Z","finalizers":["a/b"],"name":"marked"`)
	putThing(t, store, thingsPrefix+"ns/released", `"deletionTimestamp":"2020-01-01T00:00:00Z","finalizers":[],"name":"released"`)
	putThing(t, store, "/registry/example.com/thingsandmore/ns/x", `"name":"x"`)

	// 2. Count the objects below the resource's own prefix.
	if count, err := stored.Count(ctx, "example.com", "things"); err != nil || count != 1103 {
		t.Fatalf("Count = %d, %v; want 1103", count, err)
	}

	// 3. Delete them. The remaining ones are sorted by key: held, marked and the one that looks similar.
	if err := stored.Delete(ctx, "example.com", "things"); err != nil {
		t.Fatal(err)
	}
	remaining, err := store.List(ctx, "/registry/example.com/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, keyValue := range remaining.Items {
		keys = append(keys, strings.TrimPrefix(keyValue.Key, "/registry/example.com/"))
	}
	if got, want := strings.Join(keys, " "), "things/ns/held things/ns/marked thingsandmore/ns/x"; got != want {
		t.Fatalf("got remaining objects %q, want %q", got, want)
	}
	const want = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"creationTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"deletionTimestamp":"2024-05-06T07:08:09Z","finalizers":["a/b"],"generation":2,"name":"held"},"spec":{"a":[1.0,{"metadata":{}}]}}`
	if got := string(remaining.Items[0].Value); got != want {
		t.Errorf("object with a finalizer: got\n%s\nwant\n%s", got, want)
	}

	// 4. Delete them again, which must not write the object marked again.
	revision := remaining.Items[1].ModRevision
	if err := stored.Delete(ctx, "example.com", "things"); err != nil {
		t.Fatal(err)
	}
	if keyValue, _, err := store.Get(ctx, thingsPrefix+"ns/marked", 0); err != nil || keyValue.ModRevision != revision {
		t.Errorf("terminating object: got revision %d, %v; want %d", keyValue.ModRevision, err, revision)
	}
}

// finalizerStore is a store in which every object gets a finalizer before its first deletion. It
// simulates a client that adds a finalizer after the object was read and before it is deleted.
type finalizerStore struct {
	storage.Interface
	changed map[string]bool // keys of objects that have got the finalizer
}

func (s *finalizerStore) Delete(
	ctx context.Context,
	key string,
	expected int64,
	preconditions ...storage.Precondition,
) (int64, error) {
	if !s.changed[key] {
		s.changed[key] = true
		keyValue, _, err := s.Get(ctx, key, 0)
		if err != nil {
			return 0, err
		}
		var object map[string]any
		if err := json.Unmarshal(keyValue.Value, &object); err != nil {
			return 0, err
		}
		object["metadata"].(map[string]any)["finalizers"] = []string{"example.com/late"}
		value, err := json.Marshal(object)
		if err != nil {
			return 0, err
		}
		if _, err := s.Update(ctx, key, value, keyValue.ModRevision, storage.WriteOptions{}); err != nil {
			return 0, err
		}
	}
	return s.Interface.Delete(ctx, key, expected, preconditions...)
}

// TestConcurrentFinalizerIsRespected checks that an object that gets a finalizer during its
// deletion is kept and terminating.
func TestConcurrentFinalizerIsRespected(t *testing.T) {
	ctx := context.Background()
	store := &finalizerStore{etcdtest.Embedded(t), map[string]bool{}}
	putThing(t, store, thingsPrefix+"a", `"name":"a"`)
	stored := &definition.StoredInstances{Store: store, Root: "/registry", Now: time.Now}
	if err := stored.Delete(ctx, "example.com", "things"); err != nil {
		t.Fatal(err)
	}
	keyValue, _, err := store.Get(ctx, thingsPrefix+"a", 0)
	if err != nil || !strings.Contains(string(keyValue.Value), `"deletionTimestamp"`) {
		t.Errorf("got object %s, %v; want one with a deletionTimestamp", keyValue.Value, err)
	}
}

// TestOtherPrefixesAreRejected checks that data with keys of other kinds is neither counted nor
// deleted.
func TestOtherPrefixesAreRejected(t *testing.T) {
	ctx := context.Background()
	store := etcdtest.Embedded(t)
	stored := &definition.StoredInstances{Store: store, Root: "/registry", Now: time.Now}
	for _, test := range []struct{ group, resource string }{
		{group: "rolebindings", resource: "kube-system"},
		{group: "services", resource: "specs"},
		{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"},
		{group: "apiregistration.k8s.io", resource: "apiservices"},
		{group: "example.com/things", resource: "ns"},
		{group: "example.com", resource: "things/others"},
		{group: "example.com"},
		{group: "", resource: "things"},
	} {
		key := "/registry/" + test.group + "/" + test.resource + "/a"
		putThing(t, store, key, `"name":"a"`)
		if count, err := stored.Count(ctx, test.group, test.resource); err == nil {
			t.Errorf("Count(%q, %q) = %d, want an error", test.group, test.resource, count)
		}
		if err := stored.Delete(ctx, test.group, test.resource); err == nil {
			t.Errorf("Delete(%q, %q) = nil, want an error", test.group, test.resource)
		}
		if _, _, err := store.Get(ctx, key, 0); err != nil {
			t.Errorf("Get(%q) = %v after Delete, want the object", key, err)
		}
	}
}

// TestCorruptInstanceDoesNotBlockOthers checks that Delete reports an instance that it cannot
// decode, and deletes the others.
func TestCorruptInstanceDoesNotBlockOthers(t *testing.T) {
	ctx := context.Background()
	store := etcdtest.Embedded(t)
	for _, key := range []string{"a", "c"} {
		putThing(t, store, thingsPrefix+key, `"name":"x"`)
	}
	if _, err := store.Create(ctx, thingsPrefix+"b", []byte("broken"), storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := &definition.StoredInstances{Store: store, Root: "/registry", Now: time.Now}
	if err := stored.Delete(ctx, "example.com", "things"); err == nil || !strings.Contains(err.Error(), thingsPrefix+"b") {
		t.Errorf("Delete = %v, want an error that names %s", err, thingsPrefix+"b")
	}
	if count, err := stored.Count(ctx, "example.com", "things"); count != 1 || err != nil {
		t.Errorf("Count after Delete = %d, %v; want 1", count, err)
	}
	if _, _, err := store.Get(ctx, thingsPrefix+"c", 0); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Get(%q) = %v, want %v", thingsPrefix+"c", err, storage.ErrNotFound)
	}
}

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

const things = "/registry/example.com/things/"

var at = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

func put(t *testing.T, s storage.Interface, key, metadata string) {
	t.Helper()
	value := `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{` + metadata + `},"spec":{"a":[1.0,{"metadata":{}}]}}`
	if _, err := s.Create(context.Background(), key, []byte(value), storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestStoredInstances finds and deletes the stored objects of a removed definition.
func TestStoredInstances(t *testing.T) {
	ctx := context.Background()
	store := etcdtest.Embedded(t)
	stored := &definition.StoredInstances{Store: store, Root: "/registry", Now: func() time.Time { return at }}
	for i := range 1100 { // more than two pages
		put(t, store, fmt.Sprintf("%sns/free-%04d", things, i), `"name":"free","generation":1`)
	}
	put(t, store, things+"ns/held", `"creationTimestamp":"2020-01-01T00:00:00Z","finalizers":["a/b"],"generation":1,"name":"held"`)
	put(t, store, things+"ns/marked", `"deletionTimestamp":"2020-01-01T00:00:00Z","finalizers":["a/b"],"name":"marked"`)
	put(t, store, things+"ns/released", `"deletionTimestamp":"2020-01-01T00:00:00Z","finalizers":[],"name":"released"`)
	put(t, store, "/registry/example.com/thingsandmore/ns/x", `"name":"x"`)

	if n, err := stored.Count(ctx, "example.com", "things"); err != nil || n != 1103 {
		t.Fatalf("got %d objects, %v", n, err)
	}
	if err := stored.Delete(ctx, "example.com", "things"); err != nil {
		t.Fatal(err)
	}
	left, err := store.List(ctx, "/registry/example.com/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range left.Items {
		keys = append(keys, strings.TrimPrefix(kv.Key, "/registry/example.com/"))
	}
	if got := strings.Join(keys, " "); got != "things/ns/held things/ns/marked thingsandmore/ns/x" {
		t.Fatalf("got remaining objects %s", got)
	}
	const want = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"creationTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"deletionTimestamp":"2024-05-06T07:08:09Z","finalizers":["a/b"],"generation":2,"name":"held"},"spec":{"a":[1.0,{"metadata":{}}]}}`
	if got := string(left.Items[0].Value); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	revision := left.Items[1].ModRevision
	if err := stored.Delete(ctx, "example.com", "things"); err != nil {
		t.Fatal(err)
	}
	if kv, _, err := store.Get(ctx, things+"ns/marked", 0); err != nil || kv.ModRevision != revision {
		t.Errorf("an object that is already deleting is written again: %v", err)
	}
}

// busy is a store in which every object changes once before it can be written.
type busy struct {
	storage.Interface
	seen map[string]bool
}

func (b *busy) Delete(ctx context.Context, key string, expected int64, while ...storage.Precondition) (int64, error) {
	if !b.seen[key] {
		b.seen[key] = true
		kv, _, err := b.Get(ctx, key, 0)
		if err != nil {
			return 0, err
		}
		var o map[string]any
		if err := json.Unmarshal(kv.Value, &o); err != nil {
			return 0, err
		}
		o["metadata"].(map[string]any)["finalizers"] = []string{"late/one"}
		value, err := json.Marshal(o)
		if err != nil {
			return 0, err
		}
		if _, err := b.Update(ctx, key, value, kv.ModRevision, storage.WriteOptions{}); err != nil {
			return 0, err
		}
	}
	return b.Interface.Delete(ctx, key, expected, while...)
}

// TestConcurrentFinalizerIsRespected: an object that gets a finalizer during deletion is kept.
func TestConcurrentFinalizerIsRespected(t *testing.T) {
	ctx := context.Background()
	store := &busy{etcdtest.Embedded(t), map[string]bool{}}
	put(t, store, things+"a", `"name":"a"`)
	stored := &definition.StoredInstances{Store: store, Root: "/registry", Now: time.Now}
	if err := stored.Delete(ctx, "example.com", "things"); err != nil {
		t.Fatal(err)
	}
	kv, _, err := store.Get(ctx, things+"a", 0)
	if err != nil || !strings.Contains(string(kv.Value), `"deletionTimestamp"`) {
		t.Errorf("got object %s, %v", kv.Value, err)
	}
}

// TestOtherPrefixesAreRejected: prefixes outside of custom resources are neither counted nor
// emptied.
func TestOtherPrefixesAreRejected(t *testing.T) {
	ctx := context.Background()
	store := etcdtest.Embedded(t)
	stored := &definition.StoredInstances{Store: store, Root: "/registry", Now: time.Now}
	for _, test := range []struct{ group, resource string }{
		{"rolebindings", "kube-system"},
		{"services", "specs"},
		{"apiextensions.k8s.io", "customresourcedefinitions"},
		{"apiregistration.k8s.io", "apiservices"},
		{"example.com/things", "ns"},
		{"example.com", "things/others"},
		{"example.com", ""},
		{"", "things"},
	} {
		key := "/registry/" + test.group + "/" + test.resource + "/a"
		put(t, store, key, `"name":"a"`)
		if n, err := stored.Count(ctx, test.group, test.resource); err == nil {
			t.Errorf("%s: got a count of %d", key, n)
		}
		if err := stored.Delete(ctx, test.group, test.resource); err == nil {
			t.Errorf("%s: got no error of the deletion", key)
		}
		if _, _, err := store.Get(ctx, key, 0); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestCorruptInstanceDoesNotBlockOthers: the other instances are deleted.
func TestCorruptInstanceDoesNotBlockOthers(t *testing.T) {
	ctx := context.Background()
	store := etcdtest.Embedded(t)
	for _, key := range []string{"a", "c"} {
		put(t, store, things+key, `"name":"x"`)
	}
	if _, err := store.Create(ctx, things+"b", []byte("broken"), storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := &definition.StoredInstances{Store: store, Root: "/registry", Now: time.Now}
	if err := stored.Delete(ctx, "example.com", "things"); err == nil || !strings.Contains(err.Error(), things+"b") {
		t.Errorf("got error %v", err)
	}
	if n, err := stored.Count(ctx, "example.com", "things"); n != 1 || err != nil {
		t.Errorf("got %d remaining, %v", n, err)
	}
	if _, _, err := store.Get(ctx, things+"c", 0); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("next object: got %v", err)
	}
}

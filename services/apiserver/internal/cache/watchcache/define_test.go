package watchcache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/storage"
)

// definitions is the prefix of the keys of definitions.
const definitions = "/registry/definitions/"

// definitionOf returns the definition of a resource in a variant.
func definitionOf(name, variant string) string {
	return object{Labels: map[string]string{"variant": variant}, Data: name}.String()
}

// define writes the definition of a resource and returns its revision.
func define(store *memStore, name, variant string) int64 {
	return store.putKey(definitions+name, definitionOf(name, variant))
}

// withDefinitions makes definitions the only static resource.
func withDefinitions(c *watchcache.Config) {
	r := resourceConfig("definitions")
	r.DefinedResource = func(value []byte) (watchcache.ResourceConfig, bool) {
		var o object
		if err := json.Unmarshal(value, &o); err != nil || o.Data == "" {
			return watchcache.ResourceConfig{}, false
		}
		out := resourceConfig(o.Data)
		out.Variant = o.Labels["variant"]
		return out, true
	}
	c.Resources = []watchcache.ResourceConfig{r}
}

// undefine removes the definition of a resource and waits until the cache has applied it.
func (r *rig) undefine(name string) {
	r.store.deleteKey(definitions + name)
	r.awaitWrites()
}

// TestResourcesFollowDefinitions checks that defined resources are served as long as their
// definition exists, and that no value is lost.
func TestResourcesFollowDefinitions(t *testing.T) {
	store := newMemStore()
	store.putKey("/registry/widgets/a/old", podOnNode("n1"))
	store.putKey("/registry/widgetsets/a/other", podOnNode("n1"))
	rig := newRig(t, store, withDefinitions)
	store.putKey("/registry/widgets/a/new", podOnNode("n2"))
	store.putKey("/registry/widgets/a/gone", podOnNode("n2"))
	store.deleteKey("/registry/widgets/a/gone")
	rig.awaitWrites()
	if rig.cache.Store("widgets") != nil {
		t.Fatal("undefined resource: got a store, want none")
	}
	at := define(store, "widgets", "")
	rig.awaitWrites()
	widgets := rig.cache.Store("widgets")
	if got, want := keysOf(widgets), []string{"a/new", "a/old"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if sn := widgets.Snapshot(); sn.Revision() != at {
		t.Errorf("store is at revision %d, want %d", sn.Revision(), at)
	}
	if _, err := widgets.Watch(watchcache.WatchOptions{AfterRevision: at - 1}); !isExpired(err) {
		t.Errorf("watch from before the definition: got %v, want ExpiredError", err)
	}
	watcher, err := widgets.Watch(watchcache.WatchOptions{AfterRevision: at})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	define(store, "widgets", "") // unchanged
	store.putKey("/registry/widgets/a/later", podOnNode("n1"))
	if got := rig.drain(watcher); len(got) != 1 {
		t.Errorf("got %q, want 1 event", got)
	}

	rig.undefine("widgets")
	if err := finalError(rig.ctx, watcher); !errors.Is(err, watchcache.ErrStopped) {
		t.Errorf("watcher of a removed resource: got %v, want ErrStopped", err)
	}
	if _, err := widgets.Watch(watchcache.WatchOptions{AfterRevision: at + 1}); !errors.Is(err, watchcache.ErrStopped) {
		t.Errorf("watch of a removed resource: got %v, want ErrStopped", err)
	}
	if rig.cache.Store("widgets") != nil {
		t.Error("removed resource: got a store, want none")
	}
	store.deleteKey("/registry/widgets/a/old")
	define(store, "widgets", "")
	rig.awaitWrites()
	if got, want := keysOf(rig.cache.Store("widgets")), []string{"a/later", "a/new"}; !slices.Equal(got, want) {
		t.Errorf("after the second definition: got %q, want %q", got, want)
	}
	store.putKey(definitions+"widgets", object{}.String()) // exists, but defines nothing
	rig.awaitWrites()
	if rig.cache.Store("widgets") != nil {
		t.Error("removed resource: got a store, want none")
	}
}

// TestChangedDefinitionReplacesStore checks that a changed definition replaces the store of its
// resource. References to the former store read from the new one.
func TestChangedDefinitionReplacesStore(t *testing.T) {
	store := newMemStore()
	define(store, "widgets", "1")
	rig := newRig(t, store, withDefinitions)
	former := rig.cache.Store("widgets")
	w, err := former.Watch(watchcache.WatchOptions{Initial: watchcache.InitialState})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	store.putKey("/registry/widgets/a/x", podOnNode("n1"))
	at := define(store, "widgets", "2")
	store.putKey("/registry/widgets/a/y", podOnNode("n1"))
	rev := rig.awaitWrites()
	if err := finalError(rig.ctx, w); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("watcher of the former store: got error %v, want one that ends it", err)
	}
	if rig.cache.Store("widgets") == former {
		t.Fatal("changed definition: got the former store, want another one")
	}
	if got, want := keysOf(former), []string{"a/x", "a/y"}; !slices.Equal(got, want) || former.Snapshot().Revision() != rev {
		t.Errorf("former store returns %q at %d, want %q", got, former.Snapshot().Revision(), want)
	}
	if _, ok := former.Get("/registry/widgets/a/y"); !ok {
		t.Error("former store: got no object, want it kept")
	}
	if sn, ok := former.SnapshotAt(at, nil); !ok || sn.Len() != 1 {
		t.Errorf("former store at the definition: got snapshot: %t, want one with the object", ok)
	}
	again, err := former.Watch(watchcache.WatchOptions{AfterRevision: at})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := rig.drain(again); len(got) != 1 || !strings.Contains(got[0], "a/y") {
		t.Errorf("got %q, want 1 event of a/y", got)
	}
}

// oldState loads the given items. Tests send the batches.
type oldState struct {
	idleSource
	place storage.Position
	items []storage.KeyValue
}

// Load implements watchcache.Source.
func (s *oldState) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return s.place, page(s.items)
}

// TestHistoryStartsAtDefinition checks that changes after the definition in the same load or batch
// are history of the resource.
func TestHistoryStartsAtDefinition(t *testing.T) {
	event := func(revision int64, key, value string) storage.Event {
		return storage.Event{Type: storage.Created, Key: key, Revision: revision, CreateRevision: revision, Value: []byte(value)}
	}
	definition := definitions + "widgets"

	// Before the load, a widget was written at revision 4. after is the oldest revision from which
	// a watch of widgets can start, and want the number of events after it.
	tests := []struct {
		name   string
		loaded []storage.Event
		batch  []storage.Event
		after  int64
		want   int
	}{
		{
			name:   "defined by the load",
			loaded: []storage.Event{event(5, definition, definitionOf("widgets", ""))},
			batch:  []storage.Event{event(11, "/registry/widgets/a/x", podOnNode("")), event(12, "/registry/widgets/a/y", podOnNode(""))},
			after:  10,
			want:   2,
		},
		{
			name: "defined in the batch",
			batch: []storage.Event{
				event(11, definition, definitionOf("widgets", "")),
				event(12, "/registry/widgets/a/x", podOnNode("")),
				event(13, "/registry/widgets/a/y", podOnNode("")),
			},
			after: 11,
			want:  2,
		},
		{
			name:   "defined again in the batch",
			loaded: []storage.Event{event(5, definition, definitionOf("widgets", ""))},
			batch: []storage.Event{
				event(11, "/registry/widgets/a/x", podOnNode("")),
				{Type: storage.Deleted, Key: definition, Revision: 12},
				event(13, definition, definitionOf("widgets", "")),
				event(14, "/registry/widgets/a/y", podOnNode("")),
			},
			after: 13,
			want:  1,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src := &oldState{
				idleSource: idleSource{batches: make(chan storage.Batch), failed: make(chan error)},
				place:      storage.Position{Revision: 10},
			}
			for _, ev := range test.loaded {
				src.items = append(src.items, storage.KeyValue{
					Key:            ev.Key,
					Value:          ev.Value,
					ModRevision:    ev.Revision,
					CreateRevision: ev.CreateRevision,
				})
			}
			src.items = append(src.items, storage.KeyValue{
				Key:            "/registry/widgets/a/before",
				Value:          []byte(podOnNode("")),
				ModRevision:    4,
				CreateRevision: 4,
			})
			rig := newRig(t, newMemStore(), func(c *watchcache.Config) { withDefinitions(c); c.Source = src })
			src.batches <- storage.Batch{Events: test.batch, Revision: 20}
			if err := <-src.failed; err != nil {
				t.Fatal(err)
			}
			widgets := rig.cache.Store("widgets")
			w, err := widgets.Watch(watchcache.WatchOptions{AfterRevision: test.after})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if evs, err := drain(rig.ctx, w, 20, 8); err != nil || len(evs) != test.want {
				t.Errorf("got %q, %v, want %d events", formatEvents(evs), err, test.want)
			}
			if got := keysOf(widgets); len(got) != 3 {
				t.Errorf("got %q, want 3 objects", got)
			}
			if _, err := widgets.Watch(watchcache.WatchOptions{AfterRevision: test.after - 1}); !isExpired(err) {
				t.Errorf("watch from before: got %v, want ExpiredError", err)
			}
		})
	}
}

// TestReloadReplacesDefinedResources checks that a load that replaces history also replaces the
// defined resources.
func TestReloadReplacesDefinedResources(t *testing.T) {
	store := newMemStore()
	for _, name := range []string{"stays", "changes", "goes"} {
		define(store, name, "1")
		store.putKey("/registry/"+name+"/a/x", podOnNode(""))
	}
	src := &gatedSource{Source: watchcachetest.NewSource(store, "/registry/"), gate: make(chan struct{}, 1)}
	src.gate <- struct{}{}
	rig := newRig(t, store, func(c *watchcache.Config) { withDefinitions(c); c.Source = src })
	stays := rig.cache.Store("stays")
	changes := rig.cache.Store("changes")
	<-store.watched.get()
	store.breakWatches() // the next watch waits for the gate
	<-src.lost()
	store.putKey("/registry/comes/a/x", podOnNode(""))
	define(store, "changes", "2")
	define(store, "comes", "1")
	store.deleteKey(definitions + "goes")
	store.compact(store.newestRevision())
	src.gate <- struct{}{}
	src.gate <- struct{}{}
	rev := rig.awaitWrites()
	if rig.cache.Store("stays") != stays {
		t.Error("unchanged definition: got another store, want the same")
	}
	if rig.cache.Store("changes") == changes {
		t.Error("changed definition: got the former store, want a new one")
	}
	if rig.cache.Store("goes") != nil {
		t.Error("removed definition: got a store, want none")
	}
	if rig.cache.Store("comes") == nil {
		t.Error("new definition: got no store, want one")
	}
	for _, name := range []string{"stays", "changes", "comes"} {
		s := rig.cache.Store(name)
		if got := keysOf(s); !slices.Equal(got, []string{"a/x"}) {
			t.Errorf("%s: got %q, want [a/x]", name, got)
		}
		if w, err := s.Watch(watchcache.WatchOptions{AfterRevision: rev}); err != nil {
			t.Errorf("watch %s: %v", name, err)
		} else {
			w.Close()
		}
	}
	define(store, "goes", "1")
	rig.awaitWrites()
	if got := fmt.Sprint(keysOf(rig.cache.Store("goes"))); got != "[a/x]" {
		t.Errorf("resource defined after the reload: got %s, want [a/x]", got)
	}
}

// TestConflictingDefinitionIsIgnored checks that a definition that conflicts with an existing
// resource is ignored.
func TestConflictingDefinitionIsIgnored(t *testing.T) {
	store := newMemStore()
	rig := newRig(t, store, withDefinitions)
	store.putKey(definitions+"x", definitionOf("definitions", ""))
	store.putKey(definitions+"y", definitionOf("widgets", ""))
	rig.awaitWrites()
	if rig.cache.Store("widgets") == nil || len(keysOf(rig.cache.Store("definitions"))) != 2 {
		t.Error("got no store of widgets after an invalid definition, want one")
	}
}

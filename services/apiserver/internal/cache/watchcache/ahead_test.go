package watchcache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// TestBatchSizeDoesNotChangeResult checks that applying many events at once leaves the same state
// as applying them one by one, including corrupt values and changes of the resource's
// definition.
func TestBatchSizeDoesNotChangeResult(t *testing.T) {
	const first, last = 1000, 2500
	rig := rand.New(rand.NewPCG(7, 7))
	value := func() string {
		if rig.IntN(20) == 0 {
			return "{" // corrupt
		}
		return object{
			Labels: map[string]string{"app": fmt.Sprint(rig.IntN(300))},
			Fields: map[string]string{nodeField: fmt.Sprint("n", rig.IntN(5))},
		}.String()
	}
	created := map[string]int64{}
	next := func(revision int64) storage.Event {
		key := fmt.Sprintf("/registry/%s/ns-%d/x", []string{"widgets", "gadgets", "others"}[rig.IntN(3)], rig.IntN(700))
		switch revision % 400 {
		case 200: // widgets are removed and then defined with another variant
			return storage.Event{Type: storage.Deleted, Key: definitions + "widgets", Revision: revision}
		case 201:
			return storage.Event{
				Type:           storage.Created,
				Key:            definitions + "widgets",
				Revision:       revision,
				CreateRevision: revision,
				Value:          []byte(definitionOf("widgets", fmt.Sprint(revision))),
			}
		}
		ev := storage.Event{Type: storage.Created, Key: key, Revision: revision, CreateRevision: revision}
		if since, ok := created[key]; ok {
			ev.Type = storage.Updated
			ev.CreateRevision = since
			if rig.IntN(4) == 0 {
				delete(created, key)
				return storage.Event{Type: storage.Deleted, Key: key, Revision: revision}
			}
		}
		created[key], ev.Value = ev.CreateRevision, []byte(value())
		return ev
	}
	loaded := []storage.KeyValue{
		{Key: definitions + "widgets", Value: []byte(definitionOf("widgets", "")), ModRevision: 2, CreateRevision: 2},
		{Key: definitions + "gadgets", Value: []byte(definitionOf("gadgets", "")), ModRevision: 3, CreateRevision: 3},
	}
	for i := range int64(600) {
		key := fmt.Sprintf("/registry/gadgets/ns-%d/x", i)
		created[key] = 4 + i
		loaded = append(loaded, storage.KeyValue{Key: key, Value: []byte(value()), ModRevision: 4 + i, CreateRevision: 4 + i})
	}
	var events []storage.Event
	for revision := int64(first + 1); revision <= last; revision++ {
		events = append(events, next(revision))
	}

	after := func(batch, page int) (states [2][]string, watched []string) {
		src := &pagedState{
			oldState: oldState{
				idleSource: idleSource{batches: make(chan storage.Batch), failed: make(chan error)},
				place:      storage.Position{Revision: first},
				items:      loaded,
			},
			page: page,
		}
		rig := newRig(t, newMemStore(), func(c *watchcache.Config) { withVariantField(c); c.Source = src })
		watcher, err := rig.cache.Store("gadgets").Watch(watchcache.WatchOptions{AfterRevision: first})
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Close()
		for part := range slices.Chunk(events, batch) {
			src.batches <- storage.Batch{Events: part, Revision: part[len(part)-1].Revision}
			if err := <-src.failed; err != nil {
				t.Fatal(err)
			}
		}
		for i, name := range []string{"gadgets", "widgets"} {
			s := rig.cache.Store(name)
			seen := map[uint64]bool{}
			s.Snapshot().Ascend(s.Prefix(), "", func(e *objects.Entry) bool {
				if seen[e.ID()] || e.ID() == 0 {
					t.Errorf("%s: got ID %d, want a unique one other than 0", e.Key(), e.ID())
				}
				seen[e.ID()] = true
				states[i] = append(states[i], fmt.Sprintf("%s@%d of %d: %s %s/%s %v app=%s node=%s, variant %s",
					e.Key(), e.Revision, e.CreateRevision, e.Stored(), e.Namespace(), e.Name(),
					e.Corrupt(), e.Labels().Get("app"), e.Fields().Get(nodeField),
					e.Fields().Get("variant")))
				return true
			})
		}
		evs, err := drain(rig.ctx, watcher, last, 64)
		if err != nil {
			t.Fatal(err)
		}
		return states, formatEvents(evs)
	}
	states, watched := after(1, 1)
	if len(states[0]) < 100 || len(states[1]) < 100 || len(watched) < 100 {
		t.Fatalf("got %d and %d objects and %d events, want at least 100 of each", len(states[0]), len(states[1]), len(watched))
	}
	for _, batch := range []int{100, 250, len(events)} {
		gotStates, gotWatched := after(batch, len(loaded))
		for i := range states {
			if !slices.Equal(gotStates[i], states[i]) {
				t.Errorf("batches of %d: got %d objects, want those of single events, %d", batch, len(gotStates[i]), len(states[i]))
			}
		}
		if !slices.Equal(gotWatched, watched) {
			t.Errorf("batches of %d: got %d events, want those of single events, %d", batch, len(gotWatched), len(watched))
		}
	}
}

// withVariantField configures defined resources whose attributes depend
// on the variant of the definition.
func withVariantField(c *watchcache.Config) {
	withDefinitions(c)
	defines := c.Resources[0].DefinedResource
	c.Resources[0].DefinedResource = func(value []byte) (watchcache.ResourceConfig, bool) {
		out, is := defines(value)
		plain := out.Attributes
		out.Attributes = func(key string, value []byte) (attributes.Attributes, error) {
			a, err := plain(key, value)
			a.Fields = attributes.SetFromMap(map[string]string{nodeField: a.Fields.Get(nodeField), "variant": out.Variant})
			return a, err
		}
		return out, is
	}
}

// pagedState loads its items in pages of the given size.
type pagedState struct {
	oldState
	page int
}

// Load implements watchcache.Source.
func (s *pagedState) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	for part := range slices.Chunk(s.items, s.page) {
		if err := page(part); err != nil {
			return storage.Position{}, err
		}
	}
	return s.place, nil
}

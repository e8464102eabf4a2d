package watchcache_test

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// templateObject returns a large object that shares most of its text with others of the template.
func templateObject(template, n int) string {
	var b strings.Builder
	for line := range 60 {
		fmt.Fprintf(&b, "template %d repeats line %d in all of its objects with %x, ", template, line, template*line*line)
	}
	return object{
		Labels: map[string]string{"template": fmt.Sprint(template)},
		Data:   fmt.Sprintf("number %d is %s", n, b.String()),
	}.String()
}

// TestSimilarValuesShareDictionary checks that similar values share a dictionary and are returned
// as stored: after the load, after changes, from events and after deletions.
func TestSimilarValuesShareDictionary(t *testing.T) {
	const n = 600
	store := newMemStore()
	key := func(i int) string { return fmt.Sprintf("/registry/pods/a/p%d", i) }
	values := map[string]string{}
	put := func(i, n int) {
		values[key(i)] = templateObject(i%3, n)
		store.putKey(key(i), values[key(i)])
	}
	for i := range n {
		put(i, i)
	}
	rig := newRig(t, store, nil)
	from := rig.awaitWrites()
	check := func(when string, get func(key string) (*objects.Entry, bool)) {
		t.Helper()
		seed := maphash.MakeSeed()
		for key, value := range values {
			e, ok := get(key)
			if !ok {
				t.Fatalf("%s: got no %s, want it", when, key)
			}
			if e.Size() != len(value) || string(e.Stored()) != value || e.Sum(seed) != maphash.String(seed, value) {
				t.Fatalf("%s: %s: got another value than the stored one", when, key)
			}
			l := e.Borrow()
			if string(l.Value) != value {
				t.Fatalf("%s: lent value of %s: got another one than stored", when, key)
			}
			l.Release()
		}
	}
	check("after the load", rig.pods.Get)
	watcher := rig.watch(watchcache.WatchOptions{AfterRevision: from})
	var want []string
	for i := range n {
		want = append(want, values[key(i)])
		put(i, 10_000+i)
		want[i] = values[key(i)]
	}
	rig.awaitWrites()
	check("after changes", rig.pods.Get)
	for i := range n {
		store.deleteKey(key(i))
	}
	all, err := drain(rig.ctx, watcher, rig.awaitWrites(), 64)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2*n {
		t.Fatalf("got %d events, want %d", len(all), 2*n)
	}
	for i, ev := range all {
		if string(ev.Entry.Stored()) != want[i%n] {
			t.Fatalf("event %d, %v of %s: got value %.300s, want %.300s", i, ev.Type, ev.Entry.Key(), ev.Entry.Stored(), want[i%n])
		}
	}
	// History has two values of each object: before the change and before the deletion.
	if bytes := rig.metric("binnacle_watch_cache_history_bytes"); bytes > 2*n*float64(len(want[0]))/2 {
		t.Errorf("got a history of %v bytes, want at most half of the values: they share text", bytes)
	}
}

// randomText returns random text that is specific to the template.
func randomText(template int) string {
	r := rand.New(rand.NewPCG(20261125, uint64(template)))
	b := make([]byte, 3600)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"[r.IntN(64)]
	}
	return string(b)
}

// TestDictionariesFollowChangingTemplates checks that values still share dictionaries when
// templates change and a few objects of each remain.
func TestDictionariesFollowChangingTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, templates, rounds = 1600, 20, 30
		store := newMemStore()
		values := map[string]string{}
		rig := newRig(t, store, func(c *watchcache.Config) { c.LogEvents = 200 })
		for round := range rounds {
			var ops []keyChange
			texts := make([]string, templates)
			for i := range texts {
				texts[i] = randomText(round*templates + i)
			}
			for i := range n {
				if i/templates < round && i%2 == 0 { // every other template keeps one object
					continue
				}
				key := fmt.Sprintf("/registry/pods/a/%05d", i)
				values[key] = object{Data: fmt.Sprintf("number %d is %s", i, texts[i%templates])}.String()
				ops = append(ops, keyChange{key, []byte(values[key])})
			}
			store.applyChanges(ops...)
			rig.awaitWrites()
			time.Sleep(time.Minute)
			runtime.GC()
			runtime.GC()
		}
		stored := rig.metric(`binnacle_watch_cache_value_bytes{resource="pods"}`)
		kept := rig.metric(`binnacle_watch_cache_value_kept_bytes{resource="pods"}`)
		for range 20 { // the collector frees unused dictionaries at an unknown time
			if kept <= stored/2 {
				break
			}
			runtime.GC()
			time.Sleep(time.Minute)
			kept = rig.metric(`binnacle_watch_cache_value_kept_bytes{resource="pods"}`)
		}
		if kept > stored*2/3 { // usually a third
			t.Errorf("%v bytes of values take %v, want at most two thirds", stored, kept)
		}
		for key, value := range values {
			if e, ok := rig.pods.Get(key); !ok || string(e.Stored()) != value {
				t.Fatalf("%s: got another value than the stored one", key)
			}
		}
	})
}

// TestSealedAndVerbatimValuesShareNoDictionary checks that values that are sealed in the store or
// configured as verbatim are not put into a dictionary.
func TestSealedAndVerbatimValuesShareNoDictionary(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*watchcache.Config)
	}{
		{name: "sealed"},
		{name: "verbatim", change: keepValuesAsStored},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := newMemStore()
			if test.name == "sealed" {
				store.seal = &storage.Seal{Stored: []byte("sealed")}
			}
			for i := range 200 {
				store.putKey(fmt.Sprintf("/registry/pods/a/%05d", i), templateObject(1, i))
			}
			rig := newRig(t, store, test.change)
			rig.awaitWrites()
			stored := rig.metric(`binnacle_watch_cache_value_bytes{resource="pods"}`)
			kept := rig.metric(`binnacle_watch_cache_value_kept_bytes{resource="pods"}`)
			if kept < stored {
				t.Errorf("values of %v bytes: got %v kept, want at least as many: they share no dictionary", stored, kept)
			}
		})
	}
}

// TestSealedValuesStaySealedWhenDefinedLater checks that values that are sealed in the store stay
// sealed in the cache when their resource is defined later or redefined.
func TestSealedValuesStaySealedWhenDefinedLater(t *testing.T) {
	store := newMemStore()
	store.seal = &storage.Seal{Stored: []byte("sealed")}
	var ops []keyChange
	for i := range 200 {
		ops = append(ops, keyChange{fmt.Sprintf("%sa/%05d", "/registry/widgets/", i), []byte(templateObject(1, i))})
	}
	store.applyChanges(ops...)
	rig := newRig(t, store, withDefinitions)
	for again := range 3 {
		define(store, "widgets", fmt.Sprint(again))
		rig.awaitWrites()
		stored := rig.metric(`binnacle_watch_cache_value_bytes{resource="widgets"}`)
		kept := rig.metric(`binnacle_watch_cache_value_kept_bytes{resource="widgets"}`)
		if stored == 0 || kept < stored {
			t.Errorf("definition %d: got %v bytes take %v, want at least as many", again+1, stored, kept)
		}
		if again == 1 {
			rig.undefine("widgets")
		}
	}
}

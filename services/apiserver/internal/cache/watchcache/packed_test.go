package watchcache_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// summaryOf returns the object without its data.
func summaryOf(value []byte) []byte {
	var o object
	if json.Unmarshal(value, &o) != nil {
		return value
	}
	o.Data = ""
	return []byte(o.String())
}

// TestCompressedValuesAreReturnedAsStored checks that compressed values are returned as stored:
// after the load, from events and after deletions.
func TestCompressedValuesAreReturnedAsStored(t *testing.T) {
	noise := make([]byte, 20_000) // incompressible
	r := rand.New(rand.NewPCG(20261122, 1))
	for i := range noise {
		noise[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"[r.IntN(64)]
	}
	values := map[string]string{
		"small": object{Data: "x"}.String(),
		"large": object{Data: strings.Repeat("says much the same. ", 2_000)}.String(),
		"noise": object{Data: string(noise)}.String(),
	}
	store := newMemStore()
	key := func(name string) string { return "/registry/pods/a/" + name }
	for name, value := range values {
		store.putKey(key(name), value)
	}
	rig := newRig(t, store, func(c *watchcache.Config) {
		for i := range c.Resources {
			if c.Resources[i].Name == "pods" {
				c.Resources[i].Packed = true
				c.Resources[i].Summary = summaryOf
				read := c.Resources[i].Attributes
				c.Resources[i].Attributes = func(key string, value []byte) (attributes.Attributes, error) {
					if len(value) > 1_000 {
						t.Errorf("attributes of %s were computed from %d bytes, want the summary", key, len(value))
					}
					return read(key, value)
				}
			}
		}
	})
	from := rig.awaitWrites()
	ids := map[uint64]bool{}
	for name, value := range values {
		e, ok := rig.pods.Get(key(name))
		if !ok || string(e.Stored()) != value {
			t.Fatalf("%s: got another value than the stored one", name)
		}
		if ids[e.ID()] || e.ID() == 0 || e.ID() > 1000 {
			t.Errorf("%s: got ID %d, want a unique one in range", name, e.ID())
		}
		ids[e.ID()] = true
	}
	w := rig.watch(watchcache.WatchOptions{AfterRevision: from})
	for name, value := range values {
		store.putKey(key(name), strings.Replace(value, "{", "{ ", 1))
		store.deleteKey(key(name))
	}
	all, err := drain(rig.ctx, w, rig.awaitWrites(), 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range all {
		value := values[ev.Entry.Name()]
		if ev.Entry.Name() == "large" && string(ev.Entry.Summary()) != string(summaryOf([]byte(value))) {
			t.Errorf("%v of %s: got summary %.300s, want %.300s", ev.Type, ev.Entry.Name(), ev.Entry.Summary(), summaryOf([]byte(value)))
		}
		if got := string(ev.Entry.Stored()); got != strings.Replace(value, "{", "{ ", 1) {
			t.Errorf("%v of %s: got value %.300s, want %.300s with a space after the first brace", ev.Type, ev.Entry.Name(), got, value)
		}
	}
	if len(all) != 2*len(values) {
		t.Errorf("got %d events, want %d", len(all), 2*len(values))
	}
	// History has two values of each object: before the change and before the deletion.
	if n := rig.metric("binnacle_watch_cache_history_bytes"); n > 60_000 {
		t.Errorf("history takes %v bytes, want at most 60000: the values are compressible", n)
	}
}

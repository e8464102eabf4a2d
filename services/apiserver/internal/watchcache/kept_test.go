package watchcache_test

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/watchcache"
)

// ofTemplate is a large object that says much the same as others.
func ofTemplate(template, n int) string {
	var b strings.Builder
	for line := range 60 {
		fmt.Fprintf(&b, "template %d says in line %d what it says in all objects, and %x, ", template, line, template*line*line)
	}
	return object{
		Labels: map[string]string{"template": fmt.Sprint(template)},
		Data:   fmt.Sprintf("number %d is %s", n, b.String()),
	}.String()
}

// What objects have in common is kept once, and each is told as it was stored: in states, from the
// first load on, as it was before changes, in events, and after deletions.
func TestValuesInCommon(t *testing.T) {
	const n = 600
	store := newMemStore()
	key := func(i int) string { return fmt.Sprintf("/registry/pods/a/p%d", i) }
	values := map[string]string{}
	put := func(i, n int) {
		values[key(i)] = ofTemplate(i%3, n)
		store.put(key(i), values[key(i)])
	}
	for i := range n {
		put(i, i)
	}
	r := newRig(t, store, nil)
	from := r.sync()
	check := func(when string, get func(key string) (*watchcache.Entry, bool)) {
		t.Helper()
		seed := maphash.MakeSeed()
		for key, value := range values {
			e, ok := get(key)
			if !ok {
				t.Fatalf("%s: %s is not there", when, key)
			}
			if e.Size() != len(value) || string(e.Stored()) != value || e.Sum(seed) != maphash.String(seed, value) {
				t.Fatalf("%s: %s is not what was stored", when, key)
			}
			l := e.Lend()
			if string(l.Value) != value {
				t.Fatalf("%s: of %s something else is lent", when, key)
			}
			l.Back()
		}
	}
	check("after the load", r.pods.Get)
	w := r.watch(watchcache.WatchOptions{After: from})
	var told []string
	for i := range n {
		told = append(told, values[key(i)])
		put(i, 10_000+i)
		told[i] = values[key(i)]
	}
	r.sync()
	check("after changes", r.pods.Get)
	for i := range n {
		store.del(key(i))
	}
	all, err := drain(r.ctx, w, r.sync(), 64)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2*n {
		t.Fatalf("%d events", len(all))
	}
	for i, ev := range all {
		if string(ev.Entry.Stored()) != told[i%n] {
			t.Fatalf("event %d, %v of %s, tells another value", i, ev.Type, ev.Entry.Key)
		}
	}
	// The history has each value twice: before its change, and before its deletion.
	if bytes := r.metric("binnacle_watch_cache_history_bytes"); bytes > 2*n*float64(len(told[0]))/2 {
		t.Errorf("history takes %v bytes: what is in common is kept again and again", bytes)
	}
}

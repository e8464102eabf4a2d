package watchcache_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// labelledPod is an object with two labels, which one in ten and one in three have in common.
func labelledPod(i, version int) string {
	return object{Labels: map[string]string{"app": fmt.Sprint(i % 10), "third": fmt.Sprint(i % 3)}, Data: fmt.Sprint(version)}.String()
}

func podKey(i int) string { return fmt.Sprintf("%sns-%d/%05d", pods, i%3, i) }

// labelledRig has so many of them.
func labelledRig(t testing.TB, objects int) *rig {
	store := newMemStore()
	for i := range objects {
		store.put(podKey(i), labelledPod(i, 0))
	}
	r := newRig(t, store, nil)
	r.sync()
	return r
}

// lookedAt is how many objects lists looked at.
func (r *rig) lookedAt() float64 {
	return r.metrics()[`apiserver_cache_list_fetched_objects_total{index="",resource_prefix="/pods"}`]
}

// lookAt is how many objects a list looks at, and has.
func (r *rig) lookAt(sel watchcache.Selection) (looked, listed int) {
	before := r.lookedAt()
	n := 0
	r.pods.Snapshot().Select(sel, "", func(*watchcache.Entry) bool { n++; return true })
	return int(r.lookedAt() - before), n
}

// TestListsByLabel: what is asked for by a label again and again is looked for among those
// that have it.
func TestListsByLabel(t *testing.T) {
	const objects = 3000
	r := labelledRig(t, objects)
	app := selection(t, "", "app=3", "")
	times := 0
	for looked, listed := r.lookAt(app); looked != listed; looked, listed = r.lookAt(app) {
		if times++; looked != objects || listed != objects/10 || times > 20 {
			t.Fatalf("list %d looks at %d of %d objects for %d", times, looked, objects, listed)
		}
	}
	if times < 5 {
		t.Errorf("an index is made after %d lists, which did not cost as much", times)
	}
	for name, c := range map[string]struct {
		sel            watchcache.Selection
		looked, listed int
	}{
		"the label":                   {app, 300, 300},
		"the label, in a namespace":   {selection(t, "ns-1", "app=3", ""), 100, 100},
		"two labels":                  {selection(t, "", "third=1,app=3", ""), 300, 100},
		"two that exclude each other": {selection(t, "", "third=none,app=3", ""), 300, 0},
		"a value that nothing has":    {selection(t, "", "app=none", ""), 0, 0},
		"several values":              {selection(t, "", "app in (3,4)", ""), objects, 600},
		"not the value":               {selection(t, "", "app!=3", ""), objects, 2700},
		"another label":               {selection(t, "", "third=1", ""), objects, 1000},
	} {
		if looked, listed := r.lookAt(c.sel); looked != c.looked || listed != c.listed {
			t.Errorf("%s: %d looked at for %d, want %d for %d", name, looked, listed, c.looked, c.listed)
		}
		if got := r.pods.Snapshot().Walked(c.sel, objects); got != c.looked {
			t.Errorf("%s: it is said to look at %d, want %d", name, got, c.looked)
		}
	}
}

// TestLabelsAreForgotten that nobody asks for any more; those that are asked for stay.
func TestLabelsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 3000
		r := labelledRig(t, objects)
		app, third := selection(t, "", "app=3", ""), selection(t, "", "third=1", "")
		for range 20 {
			r.lookAt(app)
			r.lookAt(third)
		}
		for range 12 {
			time.Sleep(time.Minute)
			if looked, listed := r.lookAt(app); looked != listed {
				t.Fatalf("%d are looked at for %d, though it is asked for", looked, listed)
			}
		}
		if looked, _ := r.lookAt(third); looked != objects {
			t.Errorf("%d are looked at, where nobody has asked for long", looked)
		}
	})
}

// TestLabelsWhileWritten: an index is made while objects and their labels change, and shows
// what there is then.
func TestLabelsWhileWritten(t *testing.T) {
	const objects, writes = 2000, 2000
	r := labelledRig(t, objects)
	var all sync.WaitGroup
	all.Go(func() {
		random := rand.New(rand.NewPCG(1, 1))
		for n := range writes {
			if i := random.IntN(objects); random.IntN(5) == 0 {
				r.store.del(podKey(i))
			} else {
				r.store.put(podKey(i), labelledPod(random.IntN(objects), n))
			}
		}
	})
	for _, by := range []string{"app=3", "third=1", "app=4"} {
		all.Go(func() {
			sel := selection(t, "", by, "")
			for range 60 {
				sn := r.pods.Snapshot()
				got := cacheList(sn, sel, "")
				want := []string{}
				sn.Ascend(pods, "", func(e *watchcache.Entry) bool {
					if sel.Matches(e) {
						want = append(want, fmt.Sprintf("%s@%d/%d %s", e.Key(), e.Revision, e.CreateRevision, e.Stored()))
					}
					return true
				})
				if !slices.Equal(got, want) {
					t.Errorf("%s: %d objects, want %d", by, len(got), len(want))
					return
				}
			}
		})
	}
	all.Wait()
	rev := r.sync()
	for _, by := range []string{"app=3", "third=1"} {
		sel := selection(t, "", by, "")
		if looked, listed := r.lookAt(sel); looked != listed {
			t.Errorf("%s: %d are looked at for %d", by, looked, listed)
		}
		if got, want := cacheList(r.pods.Snapshot(), sel, ""), modelList(r.store, rev, sel, ""); !slices.Equal(got, want) {
			t.Errorf("%s: %d objects, want %d", by, len(got), len(want))
		}
		before := rev - 500
		sn, ok := r.pods.SnapshotAt(before, nil)
		if !ok {
			t.Fatalf("no state at %d", before)
		}
		if got, want := cacheList(sn, sel, ""), modelList(r.store, before, sel, ""); !slices.Equal(got, want) {
			t.Errorf("%s at %d: %d objects, want %d", by, before, len(got), len(want))
		}
	}
}

// TestLabelsThatMatterAreIndexed whatever else is asked for: labels that save less, or many that
// are asked for once.
func TestLabelsThatMatterAreIndexed(t *testing.T) {
	const objects = 3000
	store := newMemStore()
	for i := range objects {
		store.put(podKey(i), labelledPod(i, 0))
	}
	for name, disturb := range map[string]func(r *rig, i int){
		"labels that nothing has": func(r *rig, i int) {
			if i == 0 {
				for junk := range 4 {
					for range 12 {
						r.lookAt(selection(t, "", fmt.Sprintf("junk%d=x", junk), ""))
					}
				}
			}
		},
		"many labels": func(r *rig, i int) {
			for junk := range 9 {
				r.lookAt(selection(t, "ns-1", fmt.Sprintf("junk%d-%d=x", i, junk), ""))
			}
		},
		"an older state": func(r *rig, i int) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, store, nil)
			r.sync()
			app := selection(t, "", "app=3", "")
			old := r.pods.Snapshot()
			for i := range 100 {
				disturb(r, i)
				if name == "an older state" {
					old.Select(app, "", func(*watchcache.Entry) bool { return true })
					continue
				}
				r.lookAt(app)
			}
			if looked, _ := r.lookAt(app); looked != objects/10 {
				t.Errorf("%d are looked at", looked)
			}
		})
	}
}

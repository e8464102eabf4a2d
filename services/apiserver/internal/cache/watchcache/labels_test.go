package watchcache_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
)

// labelledPod returns an object with two labels. A tenth of the objects share the first one, a
// third share the second one.
func labelledPod(i, version int) string {
	return object{
		Labels: map[string]string{"app": fmt.Sprint(i % 10), "third": fmt.Sprint(i % 3)},
		Data:   fmt.Sprint(version),
	}.String()
}

// podKey returns the key of a pod.
func podKey(i int) string { return fmt.Sprintf("%sns-%d/%05d", pods, i%3, i) }

// labelledRig returns a rig with the given number of labelled pods.
func labelledRig(t testing.TB, total int) *rig {
	store := newMemStore()
	for i := range total {
		store.putKey(podKey(i), labelledPod(i, 0))
	}
	r := newRig(t, store, nil)
	r.awaitWrites()
	return r
}

// fetched returns the number of objects that lists have examined.
func (r *rig) fetched() float64 {
	return r.metrics()[`apiserver_cache_list_fetched_objects_total{index="",resource_prefix="/pods"}`]
}

// list runs a list and returns how many objects it examined and returned.
func (r *rig) list(sel objects.Selection) (examined, listed int) {
	before := r.fetched()
	n := 0
	r.pods.Snapshot().Select(sel, "", func(*objects.Entry) bool { n++; return true })
	return int(r.fetched() - before), n
}

// TestRepeatedLabelListsUseIndex checks that repeated lists by a label examine only the objects
// with that label.
func TestRepeatedLabelListsUseIndex(t *testing.T) {
	const total = 3000
	rig := labelledRig(t, total)
	app := selection(t, "", "app=3", "")
	times := 0
	for examined, listed := rig.list(app); examined != listed; examined, listed = rig.list(app) {
		times++
		if examined != total || listed != total/10 || times > 20 {
			t.Fatalf("list %d: examined %d of %d objects and returned %d, want all examined, a tenth returned, and an index by list 20",
				times, examined, total, listed)
		}
	}
	if times < 5 {
		t.Errorf("index built after %d lists, want at least 5", times)
	}
	for name, test := range map[string]struct {
		sel              objects.Selection
		examined, listed int
	}{
		"the label":                          {sel: app, examined: 300, listed: 300},
		"the label, in a namespace":          {sel: selection(t, "ns-1", "app=3", ""), examined: 100, listed: 100},
		"two labels":                         {sel: selection(t, "", "third=1,app=3", ""), examined: 300, listed: 100},
		"two labels that exclude each other": {sel: selection(t, "", "third=none,app=3", ""), examined: 300, listed: 0},
		"a value that no object has":         {sel: selection(t, "", "app=none", ""), examined: 0, listed: 0},
		"several values":                     {sel: selection(t, "", "app in (3,4)", ""), examined: total, listed: 600},
		"not the value":                      {sel: selection(t, "", "app!=3", ""), examined: total, listed: 2700},
		"another label":                      {sel: selection(t, "", "third=1", ""), examined: total, listed: 1000},
	} {
		if examined, listed := rig.list(test.sel); examined != test.examined || listed != test.listed {
			t.Errorf("%s: examined %d for %d, want %d for %d", name, examined, listed, test.examined, test.listed)
		}
		if got := rig.pods.Snapshot().InspectedCount(test.sel, total); got != test.examined {
			t.Errorf("%s: InspectedCount = %d, want %d", name, got, test.examined)
		}
	}
}

// TestUnusedLabelIndexIsDropped checks that an index in use is kept.
func TestUnusedLabelIndexIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 3000
		rig := labelledRig(t, total)
		app := selection(t, "", "app=3", "")
		third := selection(t, "", "third=1", "")
		for range 20 {
			rig.list(app)
			rig.list(third)
		}
		for range 12 {
			time.Sleep(time.Minute)
			if examined, listed := rig.list(app); examined != listed {
				t.Fatalf("index in use: examined %d objects, want only the %d listed", examined, listed)
			}
		}
		if examined, _ := rig.list(third); examined != total {
			t.Errorf("examined %d, want all: unused index was kept", examined)
		}
	})
}

// TestLabelIndexIsCorrectUnderWrites checks an index that is built while objects and their labels
// change.
func TestLabelIndexIsCorrectUnderWrites(t *testing.T) {
	const total, writes = 2000, 2000
	rig := labelledRig(t, total)
	var all sync.WaitGroup
	all.Go(func() {
		random := rand.New(rand.NewPCG(1, 1))
		for n := range writes {
			if i := random.IntN(total); random.IntN(5) == 0 {
				rig.store.deleteKey(podKey(i))
			} else {
				rig.store.putKey(podKey(i), labelledPod(random.IntN(total), n))
			}
		}
	})
	for _, label := range []string{"app=3", "third=1", "app=4"} {
		all.Go(func() {
			sel := selection(t, "", label, "")
			for range 60 {
				sn := rig.pods.Snapshot()
				got := cacheList(sn, sel, "")
				want := []string{}
				sn.Ascend(pods, "", func(e *objects.Entry) bool {
					if sel.Matches(e) {
						want = append(want, fmt.Sprintf("%s@%d/%d %s", e.Key(), e.Revision, e.CreateRevision, e.Stored()))
					}
					return true
				})
				if !slices.Equal(got, want) {
					t.Errorf("%s: got %d objects, want %d", label, len(got), len(want))
					return
				}
			}
		})
	}
	all.Wait()
	rev := rig.awaitWrites()
	for _, label := range []string{"app=3", "third=1"} {
		sel := selection(t, "", label, "")
		if examined, listed := rig.list(sel); examined != listed {
			t.Errorf("%s: examined %d objects, want only the %d listed", label, examined, listed)
		}
		if got, want := cacheList(rig.pods.Snapshot(), sel, ""), modelList(rig.store, rev, sel, ""); !slices.Equal(got, want) {
			t.Errorf("%s: got %d objects, want %d", label, len(got), len(want))
		}
		before := rev - 500
		sn, ok := rig.pods.SnapshotAt(before, nil)
		if !ok {
			t.Fatalf("at %d: got no snapshot, want one", before)
		}
		if got, want := cacheList(sn, sel, ""), modelList(rig.store, before, sel, ""); !slices.Equal(got, want) {
			t.Errorf("%s at %d: got %d objects, want %d", label, before, len(got), len(want))
		}
	}
}

// TestFrequentLabelIsIndexedDespiteOthers checks that a frequently listed label is indexed
// although lists of other labels save less or are never repeated.
func TestFrequentLabelIsIndexedDespiteOthers(t *testing.T) {
	const (
		total      = 3000
		olderState = "lists of an older state"
	)
	store := newMemStore()
	for i := range total {
		store.putKey(podKey(i), labelledPod(i, 0))
	}
	for name, listOthers := range map[string]func(r *rig, i int){
		"labels that no object has": func(r *rig, i int) {
			if i == 0 {
				for junk := range 4 {
					for range 12 {
						r.list(selection(t, "", fmt.Sprintf("junk%d=x", junk), ""))
					}
				}
			}
		},
		"many labels": func(r *rig, i int) {
			for junk := range 9 {
				r.list(selection(t, "ns-1", fmt.Sprintf("junk%d-%d=x", i, junk), ""))
			}
		},
		olderState: func(r *rig, i int) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, store, nil)
			r.awaitWrites()
			app := selection(t, "", "app=3", "")
			old := r.pods.Snapshot()
			for i := range 100 {
				listOthers(r, i)
				if name == olderState {
					old.Select(app, "", func(*objects.Entry) bool { return true })
					continue
				}
				r.list(app)
			}
			if examined, _ := r.list(app); examined != total/10 {
				t.Errorf("examined %d objects, want %d", examined, total/10)
			}
		})
	}
}

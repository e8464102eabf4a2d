package watchcache_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// The tests of this file perform random operations on a store and compare the cache with a model. The
// model replays the whole history of the store, so it needs no cache and no index.

// pods is the prefix of the keys of pods.
const pods = "/registry/pods/"

// snapshot returns the history and the newest revision.
func (m *memStore) snapshot() (history []storage.Event, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.history), m.revision
}

// isSelected reports whether a value is selected, without an index.
func isSelected(selection objects.Selection, key string, value []byte) bool {
	attrs, err := attributesBelow(pods)(key, value)
	if err != nil {
		panic(err)
	}
	set := map[string]string{"metadata.name": attrs.Name, "metadata.namespace": attrs.Namespace}
	for k, v := range attrs.Fields.All() {
		set[k] = v
	}
	return (selection.Namespace == "" || selection.Namespace == attrs.Namespace) &&
		(selection.Name == "" || selection.Name == attrs.Name) &&
		(selection.Fields == nil || selection.Fields.Matches(fieldSet(set))) &&
		(selection.Labels == nil || selection.Labels.Matches(attrs.Labels))
}

// fieldSet holds the fields of an object for the model.
type fieldSet map[string]string

func (f fieldSet) Has(k string) bool   { _, ok := f[k]; return ok }
func (f fieldSet) Get(k string) string { return f[k] }

// modelList returns the objects that a list at a revision must return.
func modelList(store *memStore, rev int64, selection objects.Selection, from string) []string {
	store.mu.Lock()
	state := store.stateAt(rev)
	store.mu.Unlock()
	out := []string{}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if strings.HasPrefix(key, pods) && key >= from && isSelected(selection, key, state[key].Value) {
			out = append(out, fmt.Sprintf("%s@%d/%d %s", key, state[key].ModRevision, state[key].CreateRevision, state[key].Value))
		}
	}
	return out
}

// cacheList returns the objects that a list of a snapshot returns.
func cacheList(snapshot watchcache.Snapshot, selection objects.Selection, from string) []string {
	out := []string{}
	snapshot.Select(selection, from, func(e *objects.Entry) bool {
		out = append(out, fmt.Sprintf("%s@%d/%d %s", e.Key(), e.Revision, e.CreateRevision, e.Stored()))
		return true
	})
	return out
}

// modelEvents returns the events that a watcher must receive in (after, upTo].
func modelEvents(store *memStore, after, upTo int64, selection objects.Selection) []string {
	history, _ := store.snapshot()
	last := map[string][]byte{}
	out := []string{}
	for _, event := range history {
		if !strings.HasPrefix(event.Key, pods) || event.Revision > upTo {
			continue
		}
		previous := last[event.Key]
		wasSelected := previous != nil && isSelected(selection, event.Key, previous)
		nowSelected := event.Value != nil && isSelected(selection, event.Key, event.Value)
		last[event.Key] = event.Value
		if event.Revision <= after {
			continue
		}
		key := strings.TrimPrefix(event.Key, "/registry/")
		switch {
		case nowSelected && wasSelected:
			out = append(out, fmt.Sprintf("MODIFIED %s@%d %s", key, event.Revision, event.Value))
		case nowSelected:
			out = append(out, fmt.Sprintf("ADDED %s@%d %s", key, event.Revision, event.Value))
		case wasSelected:
			out = append(out, fmt.Sprintf("DELETED %s@%d %s", key, event.Revision, previous))
		}
	}
	return out
}

// drawObject draws the value of an object.
func drawObject(t *rapid.T) string {
	o := object{Labels: map[string]string{}, Fields: map[string]string{}}
	if app := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "app"); app != "" {
		o.Labels["app"] = app
	}
	if num := rapid.IntRange(0, 3).Draw(t, "num"); num > 0 {
		o.Labels["num"] = fmt.Sprint(num)
	}
	o.Fields[nodeField] = rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "node")
	if rapid.IntRange(0, 7).Draw(t, "large") == 0 { // history drops large values first
		o.Data = strings.Repeat("x", 20_000)
	}
	o.Fields["status.phase"] = rapid.SampledFrom([]string{"Pending", "Running"}).Draw(t, "phase")
	return o.String()
}

// drawKey draws a key of a pod. There are few, so that objects change often.
func drawKey(t *rapid.T) string {
	ns := rapid.SampledFrom([]string{"a", "ab", "b"}).Draw(t, "ns")
	return fmt.Sprintf("%s%s/%d", pods, ns, rapid.IntRange(0, 5).Draw(t, "name"))
}

// drawSelection draws a selection.
func drawSelection(t *rapid.T) objects.Selection {
	s := selection(t,
		rapid.SampledFrom([]string{"", "a", "ab", "none"}).Draw(t, "namespace"),
		rapid.SampledFrom([]string{
			"", "", "app=a", "app!=a", "app", "!app", "app in (a,b)", "app notin (a,c)", "app,num>1",
			"num<2,app!=b",
		}).Draw(t, "labels"),
		rapid.SampledFrom([]string{
			"", "", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n1", "metadata.name=3",
			"metadata.name!=3", "metadata.namespace!=a", "none=", "none=x", "none!=", "metadata.name=", "metadata.namespace=b",
			"status.phase=Running", "spec.nodeName=n2,status.phase!=Running", "metadata.name=1,spec.nodeName=n1",
		}).Draw(t, "fields"))
	if rapid.IntRange(0, 20).Draw(t, "nothing") == 0 {
		s.Labels = labels.Nothing()
		s.Fields = fields.Nothing()
	}
	s.Name = rapid.SampledFrom([]string{"", "", "", "2"}).Draw(t, "name")
	return s
}

// modelWatcher is a watcher of the cache with the events that it has returned.
type modelWatcher struct {
	*watchcache.Watcher
	selection objects.Selection
	after     int64 // the events start after this revision; -1 while the initial state is not complete
	received  []string
	size      int // maximum number of events of a call of Next
}

// machine performs random operations on a store and compares the cache with the model.
type machine struct {
	*rig
	watchers []*modelWatcher
	clock    *clock
}

// write writes or deletes an object.
func (m *machine) write(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "writes") {
		if key := drawKey(t); rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
			m.store.deleteKey(key)
		} else {
			m.store.putKey(key, drawObject(t))
		}
	}
}

// transaction writes several objects at one revision.
func (m *machine) transaction(t *rapid.T) {
	seen := map[string]bool{}
	var ops []keyChange
	for range rapid.IntRange(2, 6).Draw(t, "ops") {
		key := drawKey(t)
		if rapid.Bool().Draw(t, "other") {
			key = strings.Replace(key, "/pods/", "/nodes/", 1)
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		o := keyChange{key: key}
		if rapid.IntRange(0, 3).Draw(t, "delete") > 0 {
			o.value = []byte(drawObject(t))
		}
		ops = append(ops, o)
	}
	m.store.applyChanges(ops...)
}

// read compares a list, at the newest or an older revision, with the model.
func (m *machine) read(t *rapid.T) {
	rev := m.awaitWrites()
	snapshot := m.pods.Snapshot()
	if snapshot.Revision() < rev {
		t.Fatalf("snapshot at %d, want at least %d", snapshot.Revision(), rev)
	}
	m.compare(t, snapshot)
	revision := rapid.Int64Range(1, snapshot.Revision()).Draw(t, "at")
	if old, ok := m.pods.SnapshotAt(revision, nil); ok { // otherwise forgotten
		if old.Revision() != revision {
			t.Fatalf("got snapshot at %d, want %d", old.Revision(), revision)
		}
		m.compare(t, old)
	}
	key := drawKey(t)
	want, exists := m.pods.Get(key)
	got, found := m.pods.Snapshot().Get(key)
	if got != want || found != exists {
		t.Fatalf("%s: got %v in the snapshot, want that of the store, %v", key, got, want)
	}
}

// compare compares a list and a count of a snapshot with the model.
func (m *machine) compare(t *rapid.T, snapshot watchcache.Snapshot) {
	selection := drawSelection(t)
	from := ""
	if rapid.Bool().Draw(t, "continue") {
		from = drawKey(t)
	}
	want := modelList(m.store, snapshot.Revision(), selection, from)
	if got := cacheList(snapshot, selection, from); !slices.Equal(got, want) {
		t.Fatalf("list of %+v from %q at %d:\n got %q\nwant %q", selection, from, snapshot.Revision(), got, want)
	}
	prefix := pods + rapid.SampledFrom([]string{"", "a/", "ab/", "none/"}).Draw(t, "prefix")
	n := 0
	snapshot.Ascend(prefix, from, func(*objects.Entry) bool { n++; return true })
	if got := snapshot.Count(prefix, from); got != n {
		t.Fatalf("count of %s from %s: got %d, want %d", prefix, from, got, n)
	}
}

// watchFrom starts a watcher at a drawn revision.
func (m *machine) watchFrom(t *rapid.T) {
	rev := m.awaitWrites()
	opts := watchcache.WatchOptions{Selection: drawSelection(t), AfterRevision: rapid.Int64Range(1, rev+3).Draw(t, "after")}
	if rapid.Bool().Draw(t, "initial") {
		opts.Initial = watchcache.InitialState
	}
	w, err := m.pods.Watch(opts)
	if isExpired(err) && opts.AfterRevision < rev {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	m.watchers = append(m.watchers, &modelWatcher{
		Watcher:   w,
		selection: opts.Selection,
		after:     opts.AfterRevision,
		size:      rapid.IntRange(1, 9).Draw(t, "buffer"),
	})
	watched := m.watchers[len(m.watchers)-1]
	if opts.Initial == watchcache.InitialNone {
		return
	}
	watched.after = -1
	if readNow := !rapid.Bool().Draw(t, "later"); readNow {
		m.drainWatcher(t, watched)
	}
}

// drainWatcher reads all events of a watcher and compares everything received so far. It reports
// whether the watcher is still valid.
func (m *machine) drainWatcher(t *rapid.T, watched *modelWatcher) bool {
	rev := m.awaitWrites()
	evs, err := drain(m.ctx, watched.Watcher, rev, watched.size)

	// 1. The initial state comes first, and ends with a bookmark.
	if watched.after < 0 && (err == nil || len(evs) > 0) {
		bookmark := slices.IndexFunc(evs, func(ev watchcache.Event) bool { return ev.Type == watchcache.Bookmark })
		if bookmark < 0 && isExpired(err) { // expired while it was sent
			return false
		}
		if bookmark < 0 {
			t.Fatalf("got events %q, %v, want the end of the initial state", formatEvents(evs), err)
		}
		watched.after = evs[bookmark].Revision
		got := []string{}
		for _, ev := range evs[:bookmark] {
			got = append(got, fmt.Sprintf("%s@%d/%d %s", ev.Entry.Key(), ev.Revision, ev.Entry.CreateRevision, ev.Entry.Stored()))
		}
		if want := modelList(m.store, watched.after, watched.selection, ""); !slices.Equal(got, want) {
			t.Fatalf("initial state of %+v at %d:\n got %q\nwant %q", watched.selection, watched.after, got, want)
		}
		evs = evs[bookmark+1:]
	}

	// 2. An expired watcher has received a prefix of the events, every other watcher all of them.
	watched.received = append(watched.received, formatEvents(evs)...)
	want := modelEvents(m.store, watched.after, rev, watched.selection)
	if isExpired(err) {
		watched.removeRevisionMark(evs, want)
		if len(watched.received) > len(want) || !slices.Equal(watched.received, want[:len(watched.received)]) {
			t.Fatalf("expired watcher of %+v after %d:\n got %q\nwant a prefix of %q", watched.selection, watched.after, watched.received, want)
		}
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(watched.received, want) {
		t.Fatalf("watcher of %+v after %d up to %d:\n got %q\nwant %q", watched.selection, watched.after, rev, watched.received, want)
	}
	return true
}

// removeRevisionMark removes the mark "entry of … in event of …" of a deletion at the end. The event
// carries the revision before its own, because more events of its revision were to follow, but the
// watcher expired before.
func (w *modelWatcher) removeRevisionMark(evs []watchcache.Event, want []string) {
	n := len(w.received)
	if len(evs) == 0 || n < 2 || n > len(want) {
		return
	}
	last := evs[len(evs)-1]
	mark := fmt.Sprintf("entry of %d in event of %d", last.Revision-1, last.Revision)
	if last.Type == watchcache.Deleted && w.received[n-2] == mark && strings.Contains(want[n-1], fmt.Sprintf("@%d ", last.Revision)) {
		w.received = slices.Delete(w.received, n-2, n-1)
	}
}

// follow compares the events of a watcher with the model, and sometimes closes it.
func (m *machine) follow(t *rapid.T) {
	if len(m.watchers) == 0 {
		t.Skip("no watchers")
	}
	i := rapid.IntRange(0, len(m.watchers)-1).Draw(t, "watcher")
	if !m.drainWatcher(t, m.watchers[i]) || rapid.IntRange(0, 5).Draw(t, "close") == 0 {
		m.watchers[i].Close()
		m.watchers = slices.Delete(m.watchers, i, i+1)
	}
}

// testModel performs random operations on a store and compares lists, counts and events of a cache
// with the model. change adjusts the configuration of the cache.
func testModel(t *testing.T, change func(*watchcache.Config)) {
	// The fake clock skips the waits for progress of the store. rapid asks a *testing.T for its
	// deadline, which synctest does not allow.
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			store := newMemStore()
			for i := range 10 {
				store.putKey(fmt.Sprintf("%sa/%d", pods, i%6), podOnNode("n1"))
			}
			clk := &clock{now: time.Unix(1e9, 0)}
			sub := &subTest{T: t}
			defer sub.cleanup()
			model := &machine{
				clock: clk,
				rig: newRig(sub, store, func(cfg *watchcache.Config) {
					cfg.Now = clk.Now
					if rapid.Bool().Draw(rt, "labels") { // index labels early
						cfg.LabelsFrom = 1
					}
					change(cfg)
				}),
			}
			sub.Cleanup(func() {
				for _, w := range model.watchers {
					w.Close()
				}
			})
			rt.Repeat(map[string]func(*rapid.T){
				"write":       model.write,
				"transaction": model.transaction,
				"outside":     func(*rapid.T) { model.store.advanceRevision() },
				"read":        model.read,
				"watch":       model.watchFrom,
				"follow":      model.follow,
				"disconnect":  func(*rapid.T) { model.store.breakWatches() },
				"compact": func(t *rapid.T) {
					if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
						model.store.compact(model.store.newestRevision())
					}
				},
				"time": func(t *rapid.T) { clk.advance(time.Duration(rapid.IntRange(0, 200).Draw(t, "s")) * time.Second) },
			})
			for _, w := range model.watchers {
				model.drainWatcher(rt, w)
			}
		})
	})
}

// TestCacheMatchesModel compares a cache with the default limits to the model.
func TestCacheMatchesModel(t *testing.T) {
	testModel(t, func(*watchcache.Config) {})
}

// TestCacheMatchesModelWithShortHistory compares a cache with a short history to the model.
func TestCacheMatchesModelWithShortHistory(t *testing.T) {
	testModel(t, func(cfg *watchcache.Config) { cfg.LogEvents = 20 })
}

// TestCacheMatchesModelWithSmallBudget compares a cache with little memory for history to the model.
func TestCacheMatchesModelWithSmallBudget(t *testing.T) {
	testModel(t, func(cfg *watchcache.Config) { cfg.HistoryBytes = 4 << 10 })
}

// TestCacheMatchesModelWithoutLargeValues compares a cache that drops large values from history to the model.
func TestCacheMatchesModelWithoutLargeValues(t *testing.T) {
	testModel(t, func(cfg *watchcache.Config) { cfg.HistoryBytes = 30 << 10 })
}

package watchcache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/storage"
)

// TestMain fails if a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is the stored form of objects in these tests.
type object struct {
	Labels map[string]string `json:"l,omitempty"`
	Fields map[string]string `json:"f,omitempty"`
	Data   string            `json:"d,omitempty"`
}

// String returns the stored form.
func (o object) String() string {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// attributesBelow returns a function that reads the attributes of an object whose key has a prefix.
func attributesBelow(prefix string) func(string, []byte) (attributes.Attributes, error) {
	return func(key string, value []byte) (attributes.Attributes, error) {
		ns, name, ok := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		if !ok {
			ns, name = "", ns
		}
		var o object
		if err := json.Unmarshal(value, &o); err != nil {
			return attributes.Attributes{}, err
		}
		return attributes.Attributes{
			Namespace: ns,
			Name:      name,
			Labels:    attributes.SetFromMap(o.Labels),
			Fields:    attributes.SetFromMap(o.Fields),
		}, nil
	}
}

// nodeField is the indexed field of all resources.
const nodeField = "spec.nodeName"

// resourceConfig returns a resource whose objects are of type object.
func resourceConfig(name string) watchcache.ResourceConfig {
	prefix := "/registry/" + name + "/"
	return watchcache.ResourceConfig{Name: name, Prefix: prefix, Attributes: attributesBelow(prefix), Index: []string{nodeField}}
}

// rig is a running cache on an in-memory store.
type rig struct {
	t        testing.TB
	ctx      context.Context
	store    *memStore
	cache    *watchcache.Cache
	pods     *watchcache.Store
	registry *prometheus.Registry
}

// keepValuesAsStored configures all resources to keep values as stored, so that their sizes are known.
func keepValuesAsStored(c *watchcache.Config) {
	for i := range c.Resources {
		c.Resources[i].Verbatim = true
	}
}

// newRig runs a cache over a store until the test ends. change adjusts its configuration.
func newRig(t testing.TB, store *memStore, change func(*watchcache.Config)) *rig {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	cfg := watchcache.Config{
		Registerer:      reg,
		Source:          watchcachetest.NewSource(store, "/registry/"),
		CurrentRevision: store,
		HistoryReader:   store,
		// Tests count reads and confirm the revision explicitly.
		ConfirmEvery: time.Hour,
		Resources:    []watchcache.ResourceConfig{resourceConfig("pods"), resourceConfig("nodes")},
	}
	if change != nil {
		change(&cfg)
	}
	cache, err := watchcache.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	runCtx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cache.Run(runCtx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		cancel()
	})
	if err := cache.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return &rig{t, ctx, store, cache, cache.Store("pods"), reg}
}

// awaitWrites waits until the cache has applied all writes and returns its revision.
func (r *rig) awaitWrites() int64 {
	r.t.Helper()
	rev, err := r.cache.MostRecent(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return rev
}

// watch starts a watcher of pods that is closed at the end of the test.
func (r *rig) watch(opts watchcache.WatchOptions) *watchcache.Watcher {
	r.t.Helper()
	w, err := r.pods.Watch(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(w.Close)
	return w
}

// nextEvents calls w.Next or, at random, the equivalent w.Poll.
func nextEvents(ctx context.Context, w *watchcache.Watcher, buf []watchcache.Event) ([]watchcache.Event, error) {
	if rand.IntN(2) == 0 {
		return w.Next(ctx, buf)
	}
	defer context.AfterFunc(ctx, w.Trigger)()
	due := make(chan struct{})
	for {
		evs, ok, err := w.Poll(ctx, buf, func() { go func() { due <- struct{}{} }() })
		if ok {
			return evs, err
		}
		<-due
	}
}

// drain returns all events up to rev, which the cache must have applied.
func drain(ctx context.Context, w *watchcache.Watcher, rev int64, size int) ([]watchcache.Event, error) {
	var all []watchcache.Event
	for w.Revision() < rev {
		w.Trigger()
		evs, err := nextEvents(ctx, w, make([]watchcache.Event, 0, size))
		if err != nil {
			return all, err
		}
		all = append(all, evs...)
	}
	return all, nil
}

// finalError returns the error with which a watcher without unread events ends.
func finalError(ctx context.Context, w *watchcache.Watcher) error {
	for {
		evs, err := nextEvents(ctx, w, nil)
		if err != nil {
			return err
		}
		if len(evs) > 0 { // empty after a leftover trigger of drain
			return fmt.Errorf("got events %q, want none", formatEvents(evs))
		}
	}
}

// drain returns all events that a watcher has not returned yet, as text.
func (r *rig) drain(w *watchcache.Watcher) []string {
	r.t.Helper()
	evs, err := drain(r.ctx, w, r.awaitWrites(), 3)
	if err != nil {
		r.t.Fatal(err)
	}
	return formatEvents(evs)
}

// formatEvents formats events as "ADDED pods/a/b@5 {…}". Before an event whose entry has an unexpected
// revision, it inserts the mark "entry of … in event of …".
func formatEvents(evs []watchcache.Event) []string {
	out := []string{}
	for i, event := range evs {
		if event.Type == watchcache.Bookmark {
			out = append(out, fmt.Sprintf("BOOKMARK @%d", event.Revision))
			continue
		}
		entryRevision := event.Revision
		if event.Type == watchcache.Deleted && i+1 < len(evs) && evs[i+1].Revision == event.Revision {
			entryRevision-- // more events of this revision follow
		}
		if event.Type != watchcache.Added && event.Entry.Revision != entryRevision {
			out = append(out, fmt.Sprintf("entry of %d in event of %d", event.Entry.Revision, event.Revision))
		}
		out = append(out, fmt.Sprintf("%s %s@%d %s", event.Type,
			strings.TrimPrefix(event.Entry.Key(), "/registry/"), event.Revision, event.Entry.Stored()))
	}
	return out
}

// selection returns a selection. Empty arguments select all.
func selection(t interface{ Fatal(...any) }, namespace, labelSelector, fieldSelector string) objects.Selection {
	selected := objects.Selection{Namespace: namespace}
	var err error
	if labelSelector != "" {
		if selected.Labels, err = labels.Parse(labelSelector); err != nil {
			t.Fatal(err)
		}
	}
	if fieldSelector != "" {
		if selected.Fields, err = fields.ParseSelector(fieldSelector); err != nil {
			t.Fatal(err)
		}
	}
	return selected
}

// isExpired reports whether an error is an ExpiredError.
func isExpired(err error) bool {
	var e *watchcache.ExpiredError
	return errors.As(err, &e)
}

// podOnNode returns a pod with the field of a node.
func podOnNode(node string) string {
	return object{Fields: map[string]string{nodeField: node}}.String()
}

// metrics returns the values of all metrics by name and labels. A histogram yields its count.
func (r *rig) metrics() map[string]float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(pairs) > 0 {
				name += "{" + strings.Join(pairs, ",") + "}"
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// metric returns the value of one metric.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	v, ok := r.metrics()[name]
	if !ok {
		r.t.Errorf("got no metric %s, want one", name)
	}
	return v
}

// wantMetrics checks samples in the form "name{labels} value".
func (r *rig) wantMetrics(lines ...string) {
	r.t.Helper()
	values := r.metrics()
	for _, line := range lines {
		name, value, _ := strings.Cut(line, " ")
		if v, ok := values[name]; !ok || fmt.Sprint(v) != value {
			r.t.Errorf("metric %s: got %v, want %s; all metrics:\n%v", name, v, value, values)
		}
	}
}

// idleSource is an empty source. Tests send its batches.
type idleSource struct {
	batches chan storage.Batch
	failed  chan error
}

// Load implements watchcache.Source.
func (s *idleSource) Load(context.Context, func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, nil
}

// Follow implements watchcache.Source.
func (s *idleSource) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-s.batches:
			err := apply(b)
			s.failed <- err
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Progress implements watchcache.Source.
func (s *idleSource) Progress(context.Context) error { return nil }

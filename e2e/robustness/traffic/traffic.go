package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/e2e/robustness/history"
)

// Config describes the clients.
type Config struct {
	Replicas   []Replica
	Namespaces []string // exist and are used by this scenario only
	Seed       uint64
	Writers    int
	Interval   time.Duration // interval between the requests of a writer
}

// readers is the number of readers.
const readers = 2

// Traffic runs the clients.
type Traffic struct {
	clock
	replicas   []Replica
	namespaces []string
	seed       uint64

	writers     []*writer
	readers     []*reader
	watchers    []*watcher
	informers   []*informer
	randSources uint64 // number of generators that newRand has returned

	stopWrites, stopFollowing context.CancelFunc
	writing, following        sync.WaitGroup
}

// Start starts the clients.
func Start(ctx context.Context, cfg Config) *Traffic {
	traffic := &Traffic{clock: clock{time.Now()}, replicas: cfg.Replicas, namespaces: cfg.Namespaces, seed: cfg.Seed}
	for i := range cfg.Writers {
		traffic.writers = append(traffic.writers, &writer{
			clock:       traffic.clock,
			id:          i,
			mainReplica: i % len(cfg.Replicas),
			rand:        traffic.newRand(),
			replicas:    cfg.Replicas,
			namespaces:  cfg.Namespaces,
			interval:    cfg.Interval,
			known:       map[objectKey]observedObject{},
		})
	}
	newest := &atomic.Int64{}
	for i := range readers {
		traffic.readers = append(traffic.readers, &reader{
			clock: traffic.clock, name: fmt.Sprintf("reader-%d", i), rand: traffic.newRand(), replicas: cfg.Replicas,
			namespaces: cfg.Namespaces, interval: cfg.Interval, newest: newest,
		})
	}
	traffic.addWatchers()
	traffic.addInformers()
	traffic.startClients(ctx)
	return traffic
}

// newRand returns a random number generator for one client.
func (t *Traffic) newRand() *rand.Rand {
	t.randSources++
	return rand.New(rand.NewPCG(t.seed, t.randSources))
}

// addWatchers adds watches of each scope, distributed over the replicas, and some that rotate over
// the replicas.
func (t *Traffic) addWatchers() {
	namespace := t.namespaces[0]
	add := func(name string, s history.Selection, change func(*watcher)) {
		replica := len(t.watchers) % len(t.replicas)
		w := newWatcher(t, fmt.Sprintf("%s-%s", s.Resource, name), s, replica)
		if change != nil {
			change(w)
		}
		t.watchers = append(t.watchers, w)
	}
	rotate := func(w *watcher) { w.rotates = true }
	for _, resource := range resources() {
		add("one-namespace", history.Selection{Resource: resource, Namespace: namespace}, nil)
		add("one-name", history.Selection{Resource: resource, Namespace: namespace, Name: "object-0"}, nil)
		add("one-color", history.Selection{Resource: resource, Namespace: namespace, Color: colors()[0]},
			func(w *watcher) { w.encoding = protobufEncoding })
		add("rotating", history.Selection{Resource: resource, Namespace: namespace}, rotate)
		add("rotating-color", history.Selection{Resource: resource, Namespace: namespace, Color: colors()[1]}, rotate)
		add("streaming", history.Selection{Resource: resource, Namespace: namespace}, func(w *watcher) { w.streamsState = true })
		add("streaming-rotating", history.Selection{Resource: resource, Namespace: namespace}, func(w *watcher) {
			w.streamsState = true
			w.rotates = true
			w.encoding = protobufEncoding
		})
		add("metadata", history.Selection{Resource: resource, Namespace: namespace}, func(w *watcher) { w.encoding = metadataEncoding })
		add("slow", history.Selection{Resource: resource, Namespace: namespace}, func(w *watcher) { w.isSlow = true })
	}
	for i := range t.replicas {
		// The objects of earlier scenarios are selected, too.
		add(fmt.Sprintf("all-at-%d", i), history.Selection{Resource: configMaps}, func(w *watcher) { w.replica = i })
	}
}

// addInformers adds one informer of each kind for each encoding. Their requests rotate over the
// replicas, as through a load balancer.
func (t *Traffic) addInformers() {
	for i, kind := range []struct {
		name     string
		resource string
		form     encoding
		make     func(*Traffic, string, history.Selection, func() (int, encoding)) *informer
	}{
		{name: "json", resource: configMaps, form: jsonEncoding, make: newInformer},
		{name: "protobuf", resource: pods, form: protobufEncoding, make: newInformer},
		{name: "streaming-json", resource: pods, form: jsonEncoding, make: newStreamingInformer},
		{name: "streaming-protobuf", resource: configMaps, form: protobufEncoding, make: newStreamingInformer},
	} {
		replica := i
		next := func() (int, encoding) {
			replica = (replica + 1) % len(t.replicas)
			return replica, kind.form
		}
		s := history.Selection{Resource: kind.resource, Namespace: t.namespaces[0]}
		t.informers = append(t.informers, kind.make(t, kind.name, s, next))
	}
}

// startClients starts all clients. Writers and followers are stopped separately.
func (t *Traffic) startClients(ctx context.Context) {
	var writing, following context.Context
	writing, t.stopWrites = context.WithCancel(ctx)
	following, t.stopFollowing = context.WithCancel(ctx)
	for _, w := range t.watchers {
		t.following.Go(func() { w.run(following) })
	}
	for _, i := range t.informers {
		t.following.Go(func() { i.run(following) })
	}
	for _, w := range t.writers {
		t.writing.Go(func() { w.run(writing) })
	}
	for _, r := range t.readers {
		t.writing.Go(func() { r.run(writing) })
	}
}

// CheckReached returns an error that names the clients that have not received all changes up to a
// revision.
func (t *Traffic) CheckReached(truth *history.ChangeLog, revision int64) error {
	var errs []error
	check := func(s *source) {
		want := int64(0)
		if due := history.Within(truth.Events(s.watch.Selection), 0, revision); len(due) > 0 {
			want = due[len(due)-1].Revision
		}
		if reached := s.deliveredRevision.Load(); reached == 0 || reached < want {
			errs = append(errs, fmt.Errorf("%s is at revision %d of %d", s.watch.Name, reached, want))
		}
	}
	for _, w := range t.watchers {
		check(w.source)
	}
	for _, i := range t.informers {
		check(i.source)
		errs = append(errs, i.checkReached(truth, revision))
	}
	return errors.Join(errs...)
}

// StopWrites stops writers and readers and waits for their last responses.
func (t *Traffic) StopWrites() {
	t.stopWrites()
	t.writing.Wait()
}

// Stop stops all clients.
func (t *Traffic) Stop() {
	t.StopWrites()
	t.stopFollowing()
	t.following.Wait()
}

// Started returns the beginning of the history.
func (t *Traffic) Started() time.Time { return t.clock.start }

// Elapsed returns the time since the beginning of the history.
func (t *Traffic) Elapsed() time.Duration { return t.now() }

// History returns the recorded history without the truth. The error reports responses that no fault
// explains. Call it after Stop.
func (t *Traffic) History() (*history.History, error) {
	result := &history.History{Seed: t.seed}
	var errs []error
	for _, w := range t.writers {
		result.Operations = append(result.Operations, w.operations...)
	}
	for _, r := range t.readers {
		result.Reads = append(result.Reads, r.reads...)
		errs = append(errs, r.err)
	}
	for _, w := range t.watchers {
		watch, err := w.waitForWatch()
		result.Watches = append(result.Watches, watch)
		errs = append(errs, err)
	}
	for _, i := range t.informers {
		watch, err := i.waitForWatch()
		final, storeErr := i.storedVersions()
		result.Informers = append(result.Informers, &history.Informer{Watch: *watch, Final: final})
		errs = append(errs, err, storeErr)
	}
	return result, errors.Join(errs...)
}

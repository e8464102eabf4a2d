package fanout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// replicaLog records what a replica applied.
type replicaLog struct {
	mu       sync.Mutex
	applied  int64
	position storage.Position
	events   []storage.Event
	loads    int
	err      error
}

func (r *replicaLog) apply(b storage.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.checkLocked(b)
	}
	r.events = append(r.events, b.Events...)
	r.applied = b.Revision
	r.position = r.position.Advance(b)
	return nil
}

// currentPosition returns the position of the follower.
func (r *replicaLog) currentPosition() storage.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.position
	p.Revision = r.applied
	return p
}

func (r *replicaLog) checkLocked(b storage.Batch) error {
	last := r.applied
	for _, e := range b.Events {
		if e.Revision <= r.applied || e.Revision < last || e.Revision > b.Revision {
			return fmt.Errorf("event at %d after %d in a batch at %d that follows %d", e.Revision, last, b.Revision, r.applied)
		}
		last = e.Revision
	}
	if b.Revision < r.applied {
		return fmt.Errorf("batch at %d follows %d", b.Revision, r.applied)
	}
	return nil
}

func (r *replicaLog) revision() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// compareHistory compares the events with the expected history.
func (r *replicaLog) compareHistory(want []storage.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	for i := range min(len(want), len(r.events)) {
		w, g := want[i], r.events[i]
		if w.Type != g.Type || w.Key != g.Key || w.Revision != g.Revision ||
			w.CreateRevision != g.CreateRevision || !bytes.Equal(w.Value, g.Value) {
			return fmt.Errorf("event %d: got %v %s at %d, want %v %s at %d", i, g.Type, g.Key, g.Revision, w.Type, w.Key, w.Revision)
		}
	}
	if len(want) != len(r.events) {
		return fmt.Errorf("got %d events, want %d", len(r.events), len(want))
	}
	return nil
}

// replica is a Fanout with its follower, as in a process.
type replica struct {
	*Fanout
	node     *busNode
	recorded replicaLog
	from     int64 // revision before the first event of rec

	cancelRun, cancelFollow context.CancelFunc
	running                 sync.WaitGroup
}

// suite is a set of replicas with a common store and bus.
type suite struct {
	store    *fakeStore
	elector  *fakeElector
	bus      *bus
	replicas []*replica
}

func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newSuite(t *testing.T, replicas, payload int) *suite {
	t.Helper()
	s := &suite{store: newFakeStore(), bus: newBus(payload)}
	s.elector = newFakeElector(s.store)
	for i := range replicas {
		s.replicas = append(s.replicas, s.addReplica(t, i))
	}
	return s
}

// addReplica returns a replica that does not run yet.
func (s *suite) addReplica(t *testing.T, i int) *replica {
	t.Helper()
	r := &replica{node: newBusNode(s.bus)}
	r.Fanout = newTestFanout(s.store, s.elector, fmt.Sprintf("r%d", i))
	r.dial = r.node.dial
	return r
}

func newTestFanout(store storage.Interface, elector Elector, id string) *Fanout {
	o := NewOptions()
	o.Servers = []string{"nats://unused"}
	f, err := New(Config{Options: o, Store: store, Elector: elector, Root: testRoot, ID: id, Logger: quietLog()})
	if err != nil {
		panic(err)
	}
	return f
}

func (r *replica) startRun() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancelRun = cancel
	r.running.Go(func() {
		if err := r.Run(ctx); err != nil {
			r.recorded.mu.Lock()
			r.recorded.err = errors.Join(r.recorded.err, err)
			r.recorded.mu.Unlock()
		}
	})
}

// startFollow follows from the position of the replica. After a compaction or restoration it
// continues from the newest revision.
func (r *replica) startFollow(store *fakeStore) {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancelFollow = cancel
	r.running.Go(func() {
		for ctx.Err() == nil {
			err := r.Follow(ctx, r.recorded.currentPosition(), r.recorded.apply)
			compacted := new(storage.CompactedError)
			replaced := new(storage.ReplacedError)
			if errors.As(err, &compacted) || errors.As(err, &replaced) {
				r.recorded.mu.Lock()
				r.recorded.position = store.position()
				r.recorded.events = nil
				r.recorded.applied = r.recorded.position.Revision
				r.from = r.recorded.applied
				r.recorded.loads++
				r.recorded.mu.Unlock()
			}
		}
	})
}

func (r *replica) stop() {
	r.cancelRun()
	r.cancelFollow()
	r.running.Wait()
}

// startAll runs all replicas and waits until they are idle.
func (s *suite) startAll() {
	s.store.write(1, 50) // an empty history would match every store
	for _, r := range s.replicas {
		r.recorded.position = s.store.position()
		r.recorded.applied = r.recorded.position.Revision
		r.from = r.recorded.position.Revision
		r.startRun()
		r.startFollow(s.store)
	}
	s.settle(2 * time.Second)
}

func (s *suite) stopAll() {
	for _, r := range s.replicas {
		r.stop()
	}
}

// settle advances the clock and waits until all goroutines are blocked.
func (s *suite) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// checkConverged returns an error unless each replica has the whole history of the store.
func (s *suite) checkConverged() error {
	for i, r := range s.replicas {
		if got, want := r.recorded.revision(), s.store.newest(); got != want {
			return fmt.Errorf("replica %d is at %d, the store at %d (%+v)", i, got, want, r.State())
		}
		if err := r.recorded.compareHistory(s.store.historySince(r.from)); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
	}
	return nil
}

// onStream returns an error unless one replica publishes and all others receive its stream.
func (s *suite) onStream() error {
	local := 0
	for i, r := range s.replicas {
		switch st := r.State(); st.Source {
		case sourceLocal:
			local++
		case sourceNATS:
		default:
			return fmt.Errorf("replica %d: got state %+v, want it on the stream", i, st)
		}
	}
	if local != 1 || s.store.runningWatches() != 1 {
		return fmt.Errorf("got %d publishers and %d store watches, want 1 and 1", local, s.store.runningWatches())
	}
	return nil
}

func (s *suite) currentPublisher() *replica {
	for _, r := range s.replicas {
		if r.id == s.elector.currentLeader() {
			return r
		}
	}
	return nil
}

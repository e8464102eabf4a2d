package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/storage"
)

// listenNATS starts a NATS server on the loopback address. Port 0 selects any free port.
func listenNATS(t testing.TB, port int) (*server.Server, string) {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("timeout: got no NATS server, want one")
	}
	return srv, srv.ClientURL()
}

func stopNATS(srv *server.Server) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

// process is a replica connected to a NATS server.
type process struct {
	*Fanout
	recorded replicaLog
	from     int64
	cancel   context.CancelFunc
	done     sync.WaitGroup

	mu        sync.Mutex
	nextBatch chan struct{} // closed after the next batch
}

// nextBatchSeen returns a channel that is closed after the next batch.
func (p *process) nextBatchSeen() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nextBatch
}

func (p *process) apply(b storage.Batch) error {
	err := p.recorded.apply(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.nextBatch)
	p.nextBatch = make(chan struct{})
	return err
}

// processHeartbeat is the heartbeat of processes that need no other.
const processHeartbeat = 250 * time.Millisecond

func startProcess(
	t testing.TB,
	store *fakeStore,
	elector Elector,
	id string,
	servers []string,
	reg prometheus.Registerer,
) *process {
	t.Helper()
	return startProcessWithHeartbeat(t, store, elector, id, servers, reg, processHeartbeat)
}

func startProcessWithHeartbeat(
	t testing.TB,
	store *fakeStore,
	elector Elector,
	id string,
	servers []string,
	reg prometheus.Registerer,
	heartbeat time.Duration,
) *process {
	t.Helper()
	o := NewOptions()
	o.Servers = servers
	fanout, err := New(Config{
		Options:    o,
		Store:      store,
		Elector:    elector,
		Root:       testRoot,
		ID:         id,
		Logger:     quietLog(),
		Registerer: reg,
		Heartbeat:  heartbeat,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Fanout: fanout, from: store.newest(), nextBatch: make(chan struct{})}
	p.recorded.applied = p.from
	runProcess(t, p)
	return p
}

// runProcess runs a replica until the test ends.
func runProcess(t testing.TB, replica *process) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	replica.cancel = cancel
	replica.done.Go(func() {
		if err := replica.Run(ctx); err != nil {
			t.Errorf("run %s: %v", replica.id, err)
		}
	})
	replica.done.Go(func() {
		err := replica.Follow(ctx, storage.Position{Revision: replica.from}, replica.apply)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("follow %s: %v", replica.id, err)
		}
	})
	t.Cleanup(replica.stop)
}

func (p *process) stop() {
	p.cancel()
	p.done.Wait()
}

// awaitCondition waits for a condition that batches or heartbeats cause.
func (p *process) awaitCondition(t testing.TB, description string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		next := p.nextBatchSeen()
		if condition() {
			return
		}
		select {
		case <-next:
		case <-deadline.C:
			t.Fatalf("%s: timeout waiting for %s in state %+v", p.id, description, p.State())
		}
	}
}

func (p *process) awaitSource(t testing.TB, source string) {
	t.Helper()
	p.awaitCondition(t, "source "+source, func() bool { return p.State().Source == source })
}

func (p *process) awaitStream(t testing.TB) {
	t.Helper()
	p.awaitCondition(t, "the stream", func() bool { s := p.State().Source; return s == sourceLocal || s == sourceNATS })
}

func (p *process) awaitCurrent(t testing.TB, store *fakeStore) {
	t.Helper()
	rev := store.newest()
	p.awaitCondition(t, fmt.Sprintf("revision %d", rev), func() bool { return p.recorded.revision() >= rev })
	if err := p.recorded.compareHistory(store.historySince(p.from)); err != nil {
		t.Error(err)
	}
}

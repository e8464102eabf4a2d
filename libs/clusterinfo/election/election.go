package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// healthTolerance is the time after the end of the lease at which a replica that still leads counts
// as hung.
const healthTolerance = 20 * time.Second

// Election is one replica's part in an election.
type Election struct {
	o        Options
	client   kubernetes.Interface
	log      *slog.Logger
	identity string
	watchdog *leaderelection.HealthzAdaptor
	status   prometheus.Gauge

	mu     sync.Mutex // a leaf lock
	leader string     // last known leader; "" initially
}

// New prepares an election. The timeout of its requests to the API server is shorter than the
// lease. It registers the metric leader_election_master_status in r.
func New(o *Options, config *rest.Config, log *slog.Logger, r prometheus.Registerer) (*Election, error) {
	config = rest.CopyConfig(config)
	config.Timeout = max(o.RenewDeadline/2, time.Second)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("identity for leader election: %w", err)
	}
	return NewWithClient(o, client, host+"_"+string(uuid.NewUUID()), log, r), nil
}

// NewWithClient is New with a client and an identity, which must be unique among the replicas.
func NewWithClient(o *Options, client kubernetes.Interface, identity string, log *slog.Logger, r prometheus.Registerer) *Election {
	e := &Election{
		o: *o, client: client, log: log, identity: identity,
		watchdog: leaderelection.NewLeaderHealthzAdaptor(healthTolerance),
		status: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "leader_election_master_status",
			Help:        "[ALPHA] Gauge of whether this process is the leader: 1 for the leader, 0 otherwise.",
			ConstLabels: prometheus.Labels{"name": o.ResourceName},
		}),
	}
	r.MustRegister(e.status)
	return e
}

// Ready is a health check. It fails until the leader is known.
func (e *Election) Ready(*http.Request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.o.Enabled && e.leader == "" {
		return fmt.Errorf("waiting for the lease %s/%s: not read yet", e.o.ResourceNamespace, e.o.ResourceName)
	}
	return nil
}

// Alive is a health check. It fails if the lease has expired without this replica noticing.
func (e *Election) Alive(r *http.Request) error { return e.watchdog.Check(r) }

// Run runs work whenever this replica leads, until ctx ends or work returns by itself. It returns
// the error of work. The context of work ends with the lease.
func (e *Election) Run(ctx context.Context, work func(context.Context) error) error {
	if !e.o.Enabled {
		return work(ctx)
	}
	for ctx.Err() == nil {
		if ended, err := e.stand(ctx, work); ended || err != nil {
			return err
		}
		if ctx.Err() == nil {
			e.log.Warn("lost the lease, becoming a candidate again", "lease", e.o.ResourceNamespace+"/"+e.o.ResourceName)
		}
	}
	return nil
}

// stand campaigns for one term. It reports whether the work ended by itself.
func (e *Election) stand(ctx context.Context, work func(context.Context) error) (ended bool, err error) {
	// The elector releases the lease when its context ends, so the context must outlive the work.
	electorCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	t := &term{done: make(chan struct{})}
	elector, err := e.elector(func(leading context.Context) {
		if !t.begin() {
			return
		}
		defer close(t.done)
		defer stop()
		e.status.Set(1)
		defer e.status.Set(0)
		workCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(leading, cancel)()
		t.err = work(workCtx)
		t.ended = workCtx.Err() == nil
	})
	if err != nil {
		return false, err
	}
	e.watchdog.SetLeaderElection(elector)
	defer context.AfterFunc(ctx, func() {
		if t.close() {
			stop()
		}
	})()
	elector.Run(electorCtx)
	if t.close() {
		return false, nil
	}
	<-t.done
	if t.err != nil && !errors.Is(t.err, context.Canceled) {
		return t.ended, t.err
	}
	return t.ended, nil
}

func (e *Election) elector(lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	lock, err := resourcelock.New(e.o.ResourceLock, e.o.ResourceNamespace, e.o.ResourceName,
		e.client.CoreV1(), e.client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: e.identity})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: e.o.ResourceName, ReleaseOnCancel: true,
		LeaseDuration: e.o.LeaseDuration, RenewDeadline: e.o.RenewDeadline, RetryPeriod: e.o.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() {},
			OnNewLeader:      e.sawLeader,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return elector, nil
}

func (e *Election) sawLeader(identity string) {
	if identity == "" {
		return // released; the next leader will be reported
	}
	e.mu.Lock()
	e.leader = identity
	e.mu.Unlock()
	if identity == e.identity {
		e.log.Info("became leader", "lease", e.o.ResourceNamespace+"/"+e.o.ResourceName, "identity", identity)
	} else {
		e.log.Debug("leader", "lease", e.o.ResourceNamespace+"/"+e.o.ResourceName, "identity", identity)
	}
}

// term tracks whether the work of one term has begun, or never will.
type term struct {
	done  chan struct{} // closed when started work has ended
	err   error         // of the work; read after done
	ended bool          // the work ended by itself; read after done

	mu     sync.Mutex // a leaf lock
	begun  bool
	closed bool
}

func (t *term) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = !t.closed
	return t.begun
}

// close ends the term unless work has begun, and reports whether it ended it.
func (t *term) close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return !t.begun
}

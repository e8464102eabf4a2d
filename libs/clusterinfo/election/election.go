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
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
)

// healthTolerance is the time after the end of the lease at which a replica that still leads counts
// as hung.
const healthTolerance = 20 * time.Second

// Leases sends requests for leases of one namespace.
type Leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Election is one replica's part in an election.
type Election struct {
	options  Options
	leases   Leases
	log      *slog.Logger
	identity string
	status   prometheus.Gauge

	lease *coordinationv1.Lease // as last seen; used by the goroutine of Run only

	mu        sync.Mutex // leaf lock
	leader    string     // last known leader; "" initially
	holder    string     // of the lease; "" if it is released
	changedAt time.Time  // when the lease last changed, by the own clock
}

// New prepares an election. The timeout of its requests to the API server is shorter than the
// lease. It registers the metric leader_election_master_status in registerer.
func New(options *Options, config *rest.Config, log *slog.Logger, registerer prometheus.Registerer) (*Election, error) {
	config = rest.CopyConfig(config)
	config.Timeout = max(options.RenewDeadline/2, time.Second)
	client, err := kubeclient.NewClient(config, coordinationv1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("client for leader election: %w", err)
	}
	leases, err := kubeclient.NewResource[coordinationv1.Lease, coordinationv1.LeaseList](client,
		coordinationv1.SchemeGroupVersion.WithResource("leases"), options.ResourceNamespace)
	if err != nil {
		return nil, fmt.Errorf("client for leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("identity for leader election: %w", err)
	}
	return NewWithClient(options, leases, host+"_"+string(uuid.NewUUID()), log, registerer), nil
}

// NewWithClient returns an Elector that uses a client of the namespace, and an identity that must
// be unique among the replicas.
func NewWithClient(options *Options, leases Leases, identity string, log *slog.Logger, registerer prometheus.Registerer) *Election {
	election := &Election{
		options: *options, leases: leases, log: log.With("lease", options.ResourceNamespace+"/"+options.ResourceName), identity: identity,
		status: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "leader_election_master_status",
			Help:        "[ALPHA] Gauge of whether this process is the leader: 1 for the leader, 0 otherwise.",
			ConstLabels: prometheus.Labels{"name": options.ResourceName},
		}),
	}
	registerer.MustRegister(election.status)
	return election
}

// Ready is a health check. It fails until the leader is known.
func (e *Election) Ready(*http.Request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.options.Enabled && e.leader == "" {
		return fmt.Errorf("waiting for the lease %s/%s: not read yet", e.options.ResourceNamespace, e.options.ResourceName)
	}
	return nil
}

// HealthCheck is a health check. It fails if the lease has expired without this replica noticing.
func (e *Election) HealthCheck(*http.Request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holder == e.identity && time.Since(e.changedAt) > e.options.LeaseDuration+healthTolerance {
		return fmt.Errorf("failed election to renew leadership on lease %s", e.options.ResourceName)
	}
	return nil
}

// Run runs work whenever this replica leads, until ctx ends or work returns by itself. It returns
// the error of work. The context of work ends with the lease.
func (e *Election) Run(ctx context.Context, work func(context.Context) error) error {
	if !e.options.Enabled {
		return work(ctx)
	}
	for e.waitForLease(ctx) {
		if ended, err := e.runTerm(ctx, work); ended || err != nil {
			return err
		}
		if ctx.Err() == nil {
			e.log.Warn("lost the lease, becoming a candidate again")
		}
	}
	return nil
}

// runTerm runs work for one term, and releases the lease after the work has ended. It reports
// whether the work ended by itself.
func (e *Election) runTerm(ctx context.Context, work func(context.Context) error) (ended bool, err error) {
	e.status.Set(1)
	defer e.status.Set(0)
	workCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The lease is renewed until the work has ended, also during a shutdown.
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		err = work(workCtx)
		ended = workCtx.Err() == nil
	}()
	e.renewUntilLost(holding)
	cancel()
	<-done
	e.releaseLease(context.WithoutCancel(ctx))
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return ended, err
}

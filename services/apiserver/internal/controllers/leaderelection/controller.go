package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// The API group and the resources of leases and candidates.
const (
	group            = coordinationv1.GroupName
	leases           = "leases"
	candidates       = "leasecandidates"
	candidateVersion = "v1beta1"
)

// Config holds the dependencies of a Controller.
type Config struct {
	API *internalclient.Client
	// Identity identifies the current run of this replica as the holder of a Lease.
	Identity string
	Logger   *slog.Logger
	Now      func() time.Time
	// RetryPeriod is the time between attempts to acquire or renew the controller's own Lease; 0 means
	// 2 s.
	RetryPeriod time.Duration
}

// Controller elects leaders while its replica holds the controller's own Lease. It is safe for
// concurrent use.
type Controller struct {
	Config
	started atomic.Bool
	// current is the running worker; nil while another replica holds the Lease.
	current atomic.Pointer[worker]
}

// namespacedName identifies a lease or a candidate.
type namespacedName struct{ namespace, name string }

// String returns "namespace/name".
func (p namespacedName) String() string { return p.namespace + "/" + p.name }

// leaseRef returns the reference to the Lease of that name.
func (p namespacedName) leaseRef() internalclient.Ref {
	return internalclient.Collection(group, "v1", leases, p.namespace).Named(p.name)
}

// candidateRef returns the reference to the LeaseCandidate of that name.
func (p namespacedName) candidateRef() internalclient.Ref {
	return internalclient.Collection(group, candidateVersion, candidates, p.namespace).Named(p.name)
}

// New returns a Controller. Start it with Run.
func New(c Config) *Controller {
	if c.RetryPeriod == 0 {
		c.RetryPeriod = defaultRetryPeriod
	}
	return &Controller{Config: c}
}

// CandidateChanged notifies the Controller that a candidate was written or deleted.
func (c *Controller) CandidateChanged(namespace, name string) {
	if w := c.current.Load(); w != nil {
		w.enqueue(job{resource: candidates, namespacedName: namespacedName{namespace, name}})
	}
}

// LeaseChanged notifies the Controller that a lease was written or deleted. It ignores leases
// without candidates, such as those of nodes, which change often.
func (c *Controller) LeaseChanged(namespace, name string) {
	lease := namespacedName{namespace, name}
	if w := c.current.Load(); w != nil && w.isContested(lease) {
		w.enqueue(job{resource: leases, namespacedName: lease})
	}
}

// Check is a health check. It fails until Run has started.
func (c *Controller) Check(*http.Request) error {
	if !c.started.Load() {
		return errors.New("not finished")
	}
	return nil
}

// Run competes for the controller's Lease, and elects leaders while it holds the Lease, until ctx
// is canceled.
func (c *Controller) Run(ctx context.Context) error {
	c.started.Store(true)
	e := &elector{Config: c.Config, key: controllerLease()}
	return e.run(ctx, c.runWorker)
}

// controllerLease returns the name of the controller's own Lease, for which the replicas compete.
// Clients cannot be candidates for it.
func controllerLease() namespacedName {
	return namespacedName{api.SystemNamespace, "leader-election-controller"}
}

// runWorker runs a worker until ctx is canceled.
func (c *Controller) runWorker(ctx context.Context) {
	w := newWorker(c.Config)
	c.current.Store(w) // before the first read, so that no later change is missed
	defer c.current.Store(nil)
	w.run(ctx)
}

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

const (
	group            = coordinationv1.GroupName
	leases           = "leases"
	candidates       = "leasecandidates"
	candidateVersion = "v1beta1"
)

// Config holds the dependencies of a Controller.
type Config struct {
	API *internalclient.Client
	// Identity is unique to this run of this replica.
	Identity string
	Logger   *slog.Logger
	Now      func() time.Time
}

// Controller elects leaders while its replica holds the Lease for it.
type Controller struct {
	Config
	started atomic.Bool
	// current is nil while another replica holds the Lease.
	current atomic.Pointer[worker]
}

// namespacedName identifies a lease or a candidate.
type namespacedName struct{ namespace, name string }

func (p namespacedName) String() string { return p.namespace + "/" + p.name }

func (p namespacedName) lease() internalclient.Ref {
	return internalclient.Collection(group, "v1", leases, p.namespace).Named(p.name)
}

func (p namespacedName) candidate() internalclient.Ref {
	return internalclient.Collection(group, candidateVersion, candidates, p.namespace).Named(p.name)
}

// New returns a Controller.
func New(c Config) *Controller { return &Controller{Config: c} }

// CandidateChanged notifies the Controller that a candidate was written or deleted.
func (c *Controller) CandidateChanged(namespace, name string) {
	if w := c.current.Load(); w != nil {
		w.enqueue(job{candidates, namespacedName{namespace, name}})
	}
}

// LeaseChanged notifies the Controller that a lease was written or deleted. It ignores leases without
// candidates, such as those of nodes, which change often.
func (c *Controller) LeaseChanged(namespace, name string) {
	lease := namespacedName{namespace, name}
	if w := c.current.Load(); w != nil && w.isContested(lease) {
		w.enqueue(job{leases, lease})
	}
}

// Check is a health check. It fails until Run has started.
func (c *Controller) Check(*http.Request) error {
	if !c.started.Load() {
		return errors.New("not finished")
	}
	return nil
}

// Run competes for the Lease, and elects leaders while it holds the Lease, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.started.Store(true)
	e := &elector{Config: c.Config, key: controllerLease()}
	return e.run(ctx, c.elect)
}

// controllerLease returns the Lease that the replicas compete for. Candidates may not stand for it.
func controllerLease() namespacedName {
	return namespacedName{api.SystemNamespace, "leader-election-controller"}
}

// elect runs a worker until ctx ends.
func (c *Controller) elect(ctx context.Context) {
	w := newWorker(c.Config)
	c.current.Store(w) // before the first read, so that no later change is missed
	defer c.current.Store(nil)
	w.run(ctx)
}

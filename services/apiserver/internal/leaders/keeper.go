package leaders

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/loopback"
)

const (
	group            = coordinationv1.GroupName
	leases           = "leases"
	candidates       = "leasecandidates"
	candidateVersion = "v1beta1"
)

// Config is what a Keeper works with.
type Config struct {
	API *loopback.Client
	// Identity names this replica, and this run of it.
	Identity string
	Logger   *slog.Logger
	Now      func() time.Time
}

// Keeper chooses, while its replica has the office.
type Keeper struct {
	Config
	begun atomic.Bool
	// term is nil where another replica has the office.
	term atomic.Pointer[chooser]
}

// place is which lease, or which candidate.
type place struct{ namespace, name string }

func (p place) String() string { return p.namespace + "/" + p.name }

func (p place) lease() loopback.Ref {
	return loopback.Of(group, "v1", leases, p.namespace).Named(p.name)
}

func (p place) candidate() loopback.Ref {
	return loopback.Of(group, candidateVersion, candidates, p.namespace).Named(p.name)
}

// New makes a Keeper.
func New(c Config) *Keeper { return &Keeper{Config: c} }

// CandidateChanged tells that a candidate was written or deleted.
func (k *Keeper) CandidateChanged(namespace, name string) {
	if c := k.term.Load(); c != nil {
		c.soon(job{candidates, place{namespace, name}})
	}
}

// LeaseChanged tells that a lease was written or deleted. Most leases are those of nodes,
// which change all the time and for which nobody stands.
func (k *Keeper) LeaseChanged(namespace, name string) {
	at := place{namespace, name}
	if c := k.term.Load(); c != nil && c.isContested(at) {
		c.soon(job{leases, at})
	}
}

// Check is a health check: it fails until this replica stands for the office.
func (k *Keeper) Check(*http.Request) error {
	if !k.begun.Load() {
		return errors.New("not finished")
	}
	return nil
}

// Run stands for the office, and chooses while it has it, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.begun.Store(true)
	o := &office{Config: k.Config, at: officeLease()}
	return o.run(ctx, k.choose)
}

// officeLease is the lease of those who choose, for which nobody else may stand.
func officeLease() place {
	return place{api.SystemNamespace, "leader-election-controller"}
}

// choose has a chooser work until ctx ends.
func (k *Keeper) choose(ctx context.Context) {
	c := newChooser(k.Config)
	k.term.Store(c) // before anything is read: what changes after that is told
	defer k.term.Store(nil)
	c.run(ctx)
}

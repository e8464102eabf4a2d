package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/loopback"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/storage"
)

// Config is what the objects are made from.
type Config struct {
	API   *loopback.Client
	Store storage.Interface
	Root  string // that keys stand below
	// EncodeEndpoints encodes endpoints as they are stored.
	EncodeEndpoints func(*corev1.Endpoints) ([]byte, error)
	Logger          *slog.Logger
	Now             func() time.Time

	// Identity names this replica, Instance this run of it.
	Identity, Instance, Hostname string
	AdvertiseAddress             net.IP
	SecurePort                   int
	ServiceRanges                []*net.IPNet
	// NoIdentity leaves out the lease of this replica and the removal of expired ones.
	NoIdentity bool
	// NoServiceCIDR leaves out the default ServiceCIDR.
	NoServiceCIDR bool
	// NodePort of the kubernetes service; 0 for none.
	NodePort int
	// ForeignEndpoints leaves the endpoints of the kubernetes service to others.
	ForeignEndpoints bool
	// AuthenticationConfig is the content of the config map that extension
	// servers read.
	AuthenticationConfig func() map[string]string
	// AuthenticationConfigDue receives when that may be another, or what is told of it.
	AuthenticationConfigDue <-chan struct{}
	// APIServices are the built-in group versions.
	APIServices []APIService
	// RepairAllocations makes addresses and ports agree with services; it is
	// called at the start and then at this interval.
	RepairAllocations func(context.Context) error
	RepairInterval    time.Duration
	// StorageVersions, if set, says what this replica stores.
	StorageVersions func(context.Context) error
	// Loaded, if set, waits until what the work reads is loaded: work that fails until
	// then would be tried again later than it could be done.
	Loaded func(context.Context) error
	// FeatureEnabled reports whether a feature gate is on. Default roles depend on it.
	FeatureEnabled func(features.Gate) bool
	// PolicySeen waits until the policy in process has what was written.
	PolicySeen func(context.Context) error
}

// APIService says how a group version stands among others.
type APIService struct {
	Group, Version                 string
	GroupPriority, VersionPriority int
}

// Bootstrap makes the objects and keeps them.
type Bootstrap struct {
	Config
	hooks []hook
	// reportRange logs once that the default ServiceCIDR differs from the flags.
	reportRange sync.Once
	full        atomic.Bool
}

// hook is one part of the work, which a health check tells of.
type hook struct {
	name string
	run  func(context.Context) error
	// every repeats the work; 0 does it once.
	every time.Duration
	// due, if set, receives when it is to be repeated before that; then what failed is soon, too.
	due  <-chan struct{}
	done *atomic.Bool // or cannot be done now
}

// New lists the work. Namespaces come first, as other objects stand in them.
func New(c Config) *Bootstrap {
	b := &Bootstrap{Config: c}
	b.hooks = []hook{
		{name: "start-system-namespaces-controller", run: b.namespaces, every: time.Minute},
		{name: "start-cluster-authentication-info-controller", run: b.authenticationConfig, every: authenticationConfigEvery, due: c.AuthenticationConfigDue},
		{name: "start-legacy-token-tracking-controller", run: b.tokenTracking},
		{name: "start-service-ip-repair-controllers", run: b.repairAllocations, every: c.RepairInterval},
		{name: "rbac/bootstrap-roles", run: b.roles},
		{name: "scheduling/bootstrap-system-priority-classes", run: b.priorityClasses},
		{name: "priority-and-fairness-config-producer", run: b.flowConfig, every: time.Minute},
		{name: "bootstrap-controller", run: b.kubernetesService, every: identityRenewal},
		{name: "kube-apiserver-autoregistration", run: b.apiServices},
	}
	if !c.NoIdentity {
		b.hooks = append(b.hooks,
			hook{name: "start-kube-apiserver-identity-lease-controller", run: b.identityLease, every: identityRenewal},
			hook{name: "start-kube-apiserver-identity-lease-garbage-collector", run: b.expiredIdentities, every: identityDuration})
	}
	if !c.NoServiceCIDR {
		b.hooks = append(b.hooks, hook{name: "start-kubernetes-service-cidr-controller", run: b.serviceCIDR, every: identityRenewal})
	}
	if c.StorageVersions != nil {
		b.hooks = append(b.hooks, hook{name: "built-in-resources-storage-version-updater", run: b.storageVersions, every: storageVersionsEvery})
	}
	for i := range b.hooks {
		b.hooks[i].done = new(atomic.Bool)
	}
	return b
}

// storageVersionsEvery is how often what is stored is said again, as in Kubernetes.
const storageVersionsEvery = 10 * time.Minute

// storageVersions says what this replica stores, once its lease says that there is one:
// what replicas say that have none is removed.
func (b *Bootstrap) storageVersions(ctx context.Context) error {
	if err := b.identityLease(ctx); err != nil {
		return err
	}
	return b.StorageVersions(ctx)
}

// kubernetesService makes the range that its address is of where that is missing.
func (b *Bootstrap) kubernetesService(ctx context.Context) error {
	if err := b.service(ctx); err != nil {
		if err := b.serviceCIDR(ctx); err != nil {
			return err
		}
		if err := b.service(ctx); err != nil {
			return err
		}
	}
	if b.ForeignEndpoints {
		return nil
	}
	if err := b.announce(ctx); err != nil {
		return err
	}
	return b.reconcileEndpoints(ctx)
}

var errNotFinished = errors.New("not finished")

// Checks returns a health check for each part of the work, by the name of the part. It fails
// until the part was done once, or failed because the store is full.
func (b *Bootstrap) Checks() map[string]func(*http.Request) error {
	checks := make(map[string]func(*http.Request) error, len(b.hooks))
	for _, h := range b.hooks {
		checks[h.name] = func(*http.Request) error {
			if !h.done.Load() {
				return errNotFinished
			}
			return nil
		}
	}
	return checks
}

// StoreFull reports whether a part could not be done because the store was full.
func (b *Bootstrap) StoreFull() bool { return b.full.Load() }

// Run does the work until ctx ends, then takes this replica out of the
// kubernetes service. A part that fails is tried again; it is logged, and its
// health check fails until it succeeded once, or failed because the store is full.
func (b *Bootstrap) Run(ctx context.Context) error {
	if b.Loaded != nil {
		if err := b.Loaded(ctx); err != nil {
			<-ctx.Done() // what failed ends the server, and tells why
			return ctx.Err()
		}
	}
	begun := make(chan struct{}) // of the first, which others build on
	begin := sync.OnceFunc(func() { close(begun) })
	var wg sync.WaitGroup
	for i, h := range b.hooks {
		wg.Go(func() {
			passed := func() {}
			if i == 0 {
				passed = begin
			} else {
				select {
				case <-begun:
				case <-ctx.Done():
					return
				}
			}
			b.first(ctx, h, passed)
			b.repeat(ctx, h)
		})
	}
	wg.Wait()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := b.withdraw(end); err != nil {
		b.Logger.Warn("this replica could not be taken out of the kubernetes service; it leaves by itself in a few seconds", "error", err)
	}
	return ctx.Err()
}

// first does the work until it succeeds once, and calls passed when nobody has to wait for it any
// more. A store that is full does not keep this replica
// from being ready, nor have it started again and again: deletions make room, for which there
// has to be somebody to ask, and what was made before is still there.
func (b *Bootstrap) first(ctx context.Context, h hook, passed func()) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := h.run(request.WithStartup(ctx))
		if err == nil {
			h.done.Store(true)
			passed()
			return
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, storage.ErrFull) {
			b.full.Store(true)
			h.done.Store(true)
			passed()
		}
		level := slog.LevelError
		if apierrors.IsTooManyRequests(err) { // the caches are still being filled
			level = slog.LevelDebug
		}
		b.Logger.Log(ctx, level, "initial objects could not be made; trying again", "hook", h.name, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (b *Bootstrap) repeat(ctx context.Context, h hook) {
	if h.every == 0 {
		return
	}
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	due, failed, told := h.due, false, ""
	var rested <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			told = ""
		case <-due:
		case <-rested:
			if due, rested = h.due, nil; !failed {
				continue
			}
		}
		err := h.run(ctx)
		if err == nil {
			told = ""
		}
		if failed = err != nil; failed && ctx.Err() == nil && err.Error() != told { // that is tried again each second
			told = err.Error()
			b.Logger.Error("initial objects could not be kept", "hook", h.name, "error", err)
		}
		if h.due != nil { // others may be of another opinion, and say so at once
			due, rested = nil, time.After(registrationRetry)
		}
	}
}

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
	"binnacle/services/apiserver/internal/controllers/autoregister"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/storage"
)

// Config holds the dependencies and options of a Bootstrap.
type Config struct {
	API   *internalclient.Client
	Store storage.Interface
	Root  string // prefix of all keys
	// EncodeEndpoints returns the stored form of endpoints.
	EncodeEndpoints func(*corev1.Endpoints) ([]byte, error)
	Logger          *slog.Logger
	Now             func() time.Time

	// Identity is the name of this replica, Instance that of its current run.
	Identity, Instance, Hostname string
	AdvertiseAddress             net.IP
	SecurePort                   int
	ServiceRanges                []*net.IPNet
	// NoIdentity disables the lease of this replica and the removal of expired leases.
	NoIdentity bool
	// NoServiceCIDR disables the default ServiceCIDR.
	NoServiceCIDR bool
	// NodePort is the node port of the kubernetes service; 0 for none.
	NodePort int
	// ForeignEndpoints leaves the endpoints of the kubernetes service to other components.
	ForeignEndpoints bool
	// AuthenticationConfig returns the content of the config map that extension servers read.
	AuthenticationConfig func() map[string]string
	// AuthenticationConfigDue receives a value when that content or the config map may have
	// changed.
	AuthenticationConfigDue <-chan struct{}
	// APIServices are the built-in group versions.
	APIServices []autoregister.APIService
	// RepairAllocations makes addresses and ports consistent with services. It is called at the
	// start and then at this interval.
	RepairAllocations func(context.Context) error
	RepairInterval    time.Duration
	// StorageVersions, if set, records the versions that this replica stores.
	StorageVersions func(context.Context) error
	// Loaded, if set, waits until the caches are loaded. Work that fails before then would be
	// retried later than necessary.
	Loaded func(context.Context) error
	// FeatureEnabled reports whether a feature gate is on. Default roles depend on it.
	FeatureEnabled func(features.Gate) bool
	// PolicySeen waits until the in-process policy has the written roles.
	PolicySeen func(context.Context) error
}

// Bootstrap creates and maintains the objects.
type Bootstrap struct {
	Config
	hooks []hook
	// reportRange logs once that the default ServiceCIDR differs from the flags.
	reportRange sync.Once
	storeFull   atomic.Bool
}

// hook is one part of the work. Each has a health check.
type hook struct {
	name string
	run  func(context.Context) error
	// every is the interval of repetitions; 0 means once.
	every time.Duration
	// trigger, if set, receives a value when the work must be repeated before its interval ends. Work
	// with a trigger is also retried soon after a failure.
	trigger <-chan struct{}
	// done is set after the first success, and when the store is full.
	done *atomic.Bool
}

// New returns a Bootstrap. Namespaces come first, because they contain other objects.
func New(c Config) *Bootstrap {
	b := &Bootstrap{Config: c}
	b.hooks = []hook{
		{name: "start-system-namespaces-controller", run: b.namespaces, every: time.Minute},
		{name: "start-cluster-authentication-info-controller", run: b.authenticationConfig, every: authenticationConfigEvery, trigger: c.AuthenticationConfigDue},
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

// storageVersionsEvery is the interval at which storage versions are recorded again, as in
// Kubernetes.
const storageVersionsEvery = 10 * time.Minute

// storageVersions records the storage versions of this replica. It first creates the lease of the
// replica, because records of replicas without a lease are removed.
func (b *Bootstrap) storageVersions(ctx context.Context) error {
	if err := b.identityLease(ctx); err != nil {
		return err
	}
	return b.StorageVersions(ctx)
}

// kubernetesService maintains the service and its endpoints. If the service cannot be created,
// kubernetesService first creates the range of its address.
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

// Checks returns a health check for each part of the work, by name. A check fails until the part
// succeeded once, or failed because the store is full.
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

// StoreFull reports whether a part has failed because the store was full.
func (b *Bootstrap) StoreFull() bool { return b.storeFull.Load() }

// Run does the work until ctx ends, then removes this replica from the kubernetes service. A part
// that fails is logged and retried. Its health check fails until it succeeded once, or failed
// because the store is full.
func (b *Bootstrap) Run(ctx context.Context) error {
	if b.Loaded != nil {
		if err := b.Loaded(ctx); err != nil {
			<-ctx.Done() // the cause ends the server and is reported there
			return ctx.Err()
		}
	}
	firstDone := make(chan struct{}) // closed after the first part, on which the others depend
	closeFirst := sync.OnceFunc(func() { close(firstDone) })
	var wg sync.WaitGroup
	for i, h := range b.hooks {
		wg.Go(func() {
			passed := func() {}
			if i == 0 {
				passed = closeFirst
			} else {
				select {
				case <-firstDone:
				case <-ctx.Done():
					return
				}
			}
			b.runUntilDone(ctx, h, passed)
			b.repeatPeriodically(ctx, h)
		})
	}
	wg.Wait()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := b.withdraw(end); err != nil {
		b.Logger.Warn("failed to remove this replica from the kubernetes service; its lease expires in a few seconds", "error", err)
	}
	return ctx.Err()
}

// quietRetry is the delay from which failures are logged as errors. Earlier ones are logged at
// debug level.
const quietRetry = 200 * time.Millisecond

// runUntilDone runs the work until it succeeds once. It calls passed when other parts need not wait
// any longer. A full store neither keeps this replica from becoming ready nor makes it restart
// repeatedly: deletions free space, which requires a running server, and the objects of earlier
// runs still exist.
func (b *Bootstrap) runUntilDone(ctx context.Context, h hook, passed func()) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		startup, s := request.Derive(ctx)
		s.Startup = true
		err := h.run(startup)
		if err == nil {
			h.done.Store(true)
			passed()
			return
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, storage.ErrFull) {
			b.storeFull.Store(true)
			h.done.Store(true)
			passed()
		}
		level := slog.LevelError
		// The caches are still loading, or a replica that starts at the same time won a race.
		if apierrors.IsTooManyRequests(err) || wait < quietRetry {
			level = slog.LevelDebug
		}
		b.Logger.Log(ctx, level, "failed to write bootstrap objects; retrying", "hook", h.name, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// repeatPeriodically runs the work at its interval, and earlier when it is due, until ctx ends. It
// logs each new error once per interval.
func (b *Bootstrap) repeatPeriodically(ctx context.Context, h hook) {
	if h.every == 0 {
		return
	}
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	trigger := h.trigger
	failed := false
	reported := ""
	var pauseOver <-chan time.Time // limits the rate of runs that are due
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			reported = ""
		case <-trigger:
		case <-pauseOver:
			trigger = h.trigger
			pauseOver = nil
			if !failed {
				continue
			}
		}
		err := h.run(ctx)
		if err == nil {
			reported = ""
		}
		failed = err != nil
		if failed && ctx.Err() == nil && err.Error() != reported {
			reported = err.Error()
			b.Logger.Error("failed to write bootstrap objects", "hook", h.name, "error", err)
		}
		if h.trigger != nil { // replicas with other data may write back immediately
			trigger = nil
			pauseOver = time.After(autoregister.RetryInterval)
		}
	}
}

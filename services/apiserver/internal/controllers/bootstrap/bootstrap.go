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

	// Identity is the name of this replica. Instance is unique to the current run of this replica.
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
	// AuthenticationConfig returns the data for the config map that extension servers read.
	AuthenticationConfig func() map[string]string
	// AuthenticationConfigDue receives a value when the data or the config map may have changed.
	AuthenticationConfigDue <-chan struct{}
	// APIServices are the built-in group versions.
	APIServices []autoregister.APIService
	// RepairAllocations makes the allocated addresses and ports consistent with services. It is
	// called at the start and then every RepairInterval.
	RepairAllocations func(context.Context) error
	RepairInterval    time.Duration
	// StorageVersions, if set, records the versions that this replica stores.
	StorageVersions func(context.Context) error
	// Loaded, if set, waits until the watch caches are loaded. Hooks start afterwards, because a
	// hook that fails earlier would be retried later than necessary.
	Loaded func(context.Context) error
	// FeatureEnabled reports whether a feature gate is on. Default roles depend on it.
	FeatureEnabled func(features.Gate) bool
	// PolicySeen waits until the RBAC authorizer of this server has the written roles.
	PolicySeen func(context.Context) error
}

// Bootstrap creates the objects that every cluster has, and maintains some of them.
type Bootstrap struct {
	Config
	hooks []hook
	// reportRange logs once that the default ServiceCIDR differs from the flags.
	reportRange sync.Once
	storeFull   atomic.Bool
}

// hook creates or maintains certain objects. Each hook has a health check of the same name. The
// names are those of the post-start hooks of kube-apiserver.
type hook struct {
	name string
	run  func(context.Context) error
	// every is the interval at which run is repeated; 0 means that it runs only until it succeeds.
	every time.Duration
	// trigger, if set, receives a value when run must be repeated before its interval ends. A hook
	// with a trigger is also retried soon after a failure.
	trigger <-chan struct{}
	// done is set after the first success, and when the store is full.
	done *atomic.Bool
}

// New returns a Bootstrap. The hook for namespaces is the first one, because namespaces contain the
// objects of other hooks.
func New(config Config) *Bootstrap {
	bootstrap := &Bootstrap{Config: config}
	bootstrap.hooks = []hook{
		{name: "start-system-namespaces-controller", run: bootstrap.createNamespaces, every: time.Minute},
		{
			name:    "start-cluster-authentication-info-controller",
			run:     bootstrap.writeAuthenticationConfig,
			every:   authenticationConfigEvery,
			trigger: config.AuthenticationConfigDue,
		},
		{name: "start-legacy-token-tracking-controller", run: bootstrap.recordTokenTracking},
		{name: "start-service-ip-repair-controllers", run: bootstrap.repairAllocations, every: config.RepairInterval},
		{name: "rbac/bootstrap-roles", run: bootstrap.reconcileRoles},
		{name: "scheduling/bootstrap-system-priority-classes", run: bootstrap.createPriorityClasses},
		{name: "priority-and-fairness-config-producer", run: bootstrap.reconcileFlowConfig, every: time.Minute},
		{name: "bootstrap-controller", run: bootstrap.maintainKubernetesService, every: identityRenewal},
		{name: "kube-apiserver-autoregistration", run: bootstrap.registerAPIServices},
	}
	if !config.NoIdentity {
		bootstrap.hooks = append(bootstrap.hooks,
			hook{name: "start-kube-apiserver-identity-lease-controller", run: bootstrap.renewIdentityLease, every: identityRenewal},
			hook{
				name:  "start-kube-apiserver-identity-lease-garbage-collector",
				run:   bootstrap.deleteExpiredIdentities,
				every: identityDuration,
			},
		)
	}
	if !config.NoServiceCIDR {
		bootstrap.hooks = append(bootstrap.hooks,
			hook{name: "start-kubernetes-service-cidr-controller", run: bootstrap.maintainServiceCIDR, every: identityRenewal})
	}
	if config.StorageVersions != nil {
		bootstrap.hooks = append(bootstrap.hooks,
			hook{name: "built-in-resources-storage-version-updater", run: bootstrap.recordStorageVersions, every: storageVersionsEvery})
	}
	for i := range bootstrap.hooks {
		bootstrap.hooks[i].done = new(atomic.Bool)
	}
	return bootstrap
}

// storageVersionsEvery is the interval at which storage versions are recorded again, as in
// Kubernetes.
const storageVersionsEvery = 10 * time.Minute

// recordStorageVersions records the storage versions of this replica. It first renews the lease of
// the replica, because kube-controller-manager removes the records of replicas without a lease.
func (b *Bootstrap) recordStorageVersions(ctx context.Context) error {
	if err := b.renewIdentityLease(ctx); err != nil {
		return err
	}
	return b.StorageVersions(ctx)
}

// maintainKubernetesService maintains the kubernetes service and its endpoints. If the service
// cannot be created, the reason may be that the ServiceCIDR of its address does not exist yet, so
// it creates the ServiceCIDR and tries again.
func (b *Bootstrap) maintainKubernetesService(ctx context.Context) error {
	if err := b.createKubernetesService(ctx); err != nil {
		if err := b.maintainServiceCIDR(ctx); err != nil {
			return err
		}
		if err := b.createKubernetesService(ctx); err != nil {
			return err
		}
	}
	if b.ForeignEndpoints {
		return nil
	}
	if err := b.renewAddress(ctx); err != nil {
		return err
	}
	return b.reconcileEndpoints(ctx)
}

var errNotFinished = errors.New("not finished")

// Checks returns the health check of each hook, by name. A check fails until the hook has succeeded
// once, or has failed because the store is full.
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

// StoreFull reports whether a hook has failed because the store was full.
func (b *Bootstrap) StoreFull() bool { return b.storeFull.Load() }

// Run runs the hooks, each in its own goroutine, until ctx is canceled. Then it removes this
// replica from the kubernetes service. A hook that fails is logged and retried.
func (b *Bootstrap) Run(ctx context.Context) error {
	if b.Loaded != nil {
		if err := b.Loaded(ctx); err != nil {
			<-ctx.Done() // the component that loads the caches reports the error and stops the server
			return ctx.Err()
		}
	}

	// 1. Run the hooks. All wait for the first one.
	firstDone := make(chan struct{}) // closed after the first hook, which the others wait for
	closeFirst := sync.OnceFunc(func() { close(firstDone) })
	var wg sync.WaitGroup
	for i, startHook := range b.hooks {
		wg.Go(func() {
			onDone := func() {}
			if i == 0 {
				onDone = closeFirst
			} else {
				select {
				case <-firstDone:
				case <-ctx.Done():
					return
				}
			}
			b.runUntilDone(ctx, startHook, onDone)
			b.repeatPeriodically(ctx, startHook)
		})
	}
	wg.Wait()

	// 2. At the end, remove this replica from the kubernetes service.
	withdrawCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := b.withdrawAddress(withdrawCtx); err != nil {
		b.Logger.Warn("failed to remove this replica from the kubernetes service; its lease expires in a few seconds", "error", err)
	}
	return ctx.Err()
}

// quietRetry is the retry delay from which on failures are logged as errors. Failures before
// retries with shorter delays are logged at debug level, because they are common while replicas
// start.
const quietRetry = 200 * time.Millisecond

// runUntilDone runs a hook until it succeeds once. It calls onDone when other hooks need not wait
// for this one any longer. A full store counts as done, and the hook is retried: the server must
// become ready so that clients can delete objects, and the objects of earlier runs still exist.
func (b *Bootstrap) runUntilDone(ctx context.Context, startHook hook, onDone func()) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		startupCtx, state := request.Derive(ctx)
		state.Startup = true
		err := startHook.run(startupCtx)
		if err == nil {
			startHook.done.Store(true)
			onDone()
			return
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, storage.ErrFull) {
			b.storeFull.Store(true)
			startHook.done.Store(true)
			onDone()
		}
		level := slog.LevelError
		// The watch caches are still loading, or another replica that starts at the same time has
		// just written the object.
		isUsualAtStart := apierrors.IsTooManyRequests(err) || wait < quietRetry
		if isUsualAtStart {
			level = slog.LevelDebug
		}
		b.Logger.Log(ctx, level, "failed to write bootstrap objects; retrying", "hook", startHook.name, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// repeatPeriodically runs a hook at its interval, and earlier when its trigger receives a value,
// until ctx is canceled. It logs each error once per interval.
//
// After each run of a hook with a trigger, the trigger is ignored for autoregister.RetryInterval.
// Otherwise two replicas with different data could write without end.
func (b *Bootstrap) repeatPeriodically(ctx context.Context, startHook hook) {
	if startHook.every == 0 {
		return
	}
	tick := time.NewTicker(startHook.every)
	defer tick.Stop()
	trigger := startHook.trigger // nil while it is ignored
	failed := false
	reported := ""                 // the last logged error
	var pauseOver <-chan time.Time // nil unless the trigger is ignored
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			reported = ""
		case <-trigger:
		case <-pauseOver:
			trigger = startHook.trigger
			pauseOver = nil
			if !failed {
				continue
			}
		}
		err := startHook.run(ctx)
		if err == nil {
			reported = ""
		}
		failed = err != nil
		if failed && ctx.Err() == nil && err.Error() != reported {
			reported = err.Error()
			b.Logger.Error("failed to write bootstrap objects", "hook", startHook.name, "error", err)
		}
		if startHook.trigger != nil {
			trigger = nil
			pauseOver = time.After(autoregister.RetryInterval)
		}
	}
}

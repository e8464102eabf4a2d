package aggregation

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/task"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/api/kinds/apiregistration"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

const (
	// checkInterval is the interval between checks of an available server.
	checkInterval = 30 * time.Second
	// firstRetryDelay is the delay before an unavailable server is checked again. The delay doubles
	// with each failed check, up to checkInterval.
	firstRetryDelay = time.Second
	// scheduleInterval is how often Run looks for due checks without being triggered.
	scheduleInterval = 250 * time.Millisecond
)

// Config holds the dependencies of an Aggregator.
type Config struct {
	// Store is the watch cache of APIServices. Decode decodes an entry.
	Store  *watchcache.Store
	Decode func(*objects.Entry) (*apiregistrationv1.APIService, error)
	// Local reports whether a group version is built in, so that this server serves it.
	Local func(schema.GroupVersion) bool
	// Service and Endpoints return the service of an APIService and its endpoints. A missing object
	// is a NotFound error.
	Service   func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	Endpoints func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error)
	// Resolve returns the host:port at which a port of a service is reachable.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial connects to extension servers. If it is nil, connections are direct.
	Dial webhookclient.Dial
	// Certificate returns the client certificate for extension servers. It may return nil.
	Certificate func() *tls.Certificate
	// MaxRequests is the maximum number of requests that wait for one server at a time. One user
	// may have at most half of them. 0 means no limit.
	MaxRequests int
	// MaxChecks is the maximum number of concurrent checks of servers.
	MaxChecks int
	// MaxPages is the maximum number of HTML pages whose links are rewritten at a time.
	MaxPages int
	// AcquireSlot, if set, acquires a slot for a request that upgrades its connection. The caller
	// releases it with release. See reverseproxy.Proxy.
	AcquireSlot func(*http.Request) (release func(), err error)
	// FollowRedirects passes redirects of extension servers to the client instead of rejecting
	// them.
	FollowRedirects bool
	// Write sets the condition Available of an APIService.
	Write   func(ctx context.Context, name string, condition apiregistrationv1.APIServiceCondition) error
	Metrics *Metrics
	// Traces, if set, creates spans for requests to extension servers.
	Traces *tracing.Provider
	Logger *slog.Logger
	Now    func() time.Time
}

// Aggregator maps group versions to the extension servers that serve them. It is safe for
// concurrent use. Run must be called, because it closes the Aggregator when its context is
// canceled.
type Aggregator struct {
	Config
	trigger chan struct{} // receives a value when Run must look for due checks
	// workCtx is canceled when Run returns. cancelWork cancels it.
	workCtx    context.Context
	cancelWork context.CancelFunc
	background sync.WaitGroup // probes and reads of documents, for which Run waits
	pages      *responselimit.PageLimiter
	// decoding serializes the decoding of documents, which may take much memory. Leaf lock.
	decoding sync.Mutex
	// localStarted and remoteStarted are the results of LocalStarted and RemoteStarted.
	localStarted, remoteStarted atomic.Bool

	onChange []func()

	mu      sync.Mutex // serializes updates of current; acquired before the locks of remotes
	current atomic.Pointer[directory]
}

// directory holds what all APIServices at one version of the store define. It does not change.
type directory struct {
	version objects.Version
	remotes map[schema.GroupVersion]*remote
	// byService holds the remotes behind each service.
	byService map[serviceName][]*remote
	// registrations holds the decoded APIServices by their key in the store.
	registrations map[string]*registration
	// local holds the names of APIServices without a service. This server serves them itself.
	local []string
	// localToWrite holds the names in local whose condition Available must still be written.
	localToWrite []string
}

// serviceName identifies a service.
type serviceName struct{ namespace, name string }

// registration is a decoded APIService.
type registration struct {
	entry *objects.Entry
	*apiregistrationv1.APIService
	key string // UID and spec, which change when the APIService names another server
}

// New returns an aggregator.
func New(c Config) *Aggregator {
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &Aggregator{Config: c, trigger: make(chan struct{}, 1), pages: responselimit.NewPageLimiter(c.MaxPages)}
	a.workCtx, a.cancelWork = context.WithCancel(context.Background())
	a.current.Store(&directory{remotes: map[schema.GroupVersion]*remote{}})
	return a
}

// OnChange registers a function to call after the resources or the availability of an extension
// server have changed. It must be called before Run.
func (a *Aggregator) OnChange(changed func()) { a.onChange = append(a.onChange, changed) }

// Handler returns the handler that proxies requests for a group version to its extension server. It
// returns nil if no extension server serves the group version.
func (a *Aggregator) Handler(gv schema.GroupVersion) http.Handler {
	if a.Local(gv) {
		return nil
	}
	if r := a.directory().remotes[gv]; r != nil {
		return r
	}
	return nil
}

// directory returns the directory of the APIServices in the watch cache. It rebuilds the directory
// if they have changed. A remote stays in use as long as its registration does not change.
func (a *Aggregator) directory() *directory {
	if d := a.current.Load(); d.version == a.Store.Snapshot().Version() {
		return d
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.Store.Snapshot()
	previous := a.current.Load()
	if previous.version == s.Version() {
		return previous
	}
	next := &directory{
		version:       s.Version(),
		remotes:       map[schema.GroupVersion]*remote{},
		byService:     map[serviceName][]*remote{},
		registrations: map[string]*registration{},
	}
	s.Ascend(a.Store.Prefix(), "", func(e *objects.Entry) bool {
		obj := previous.registrations[e.Key()]
		if obj == nil || obj.entry != e {
			obj = a.decodeEntry(e)
			if obj == nil {
				return true
			}
		}
		next.registrations[e.Key()] = obj
		if obj.Spec.Service == nil {
			next.local = append(next.local, obj.Name)
			if c, local := availableCondition(obj.APIService), apiregistration.LocalAvailable(); c == nil ||
				!EqualConditions(c, &local) {
				next.localToWrite = append(next.localToWrite, obj.Name)
			}
			return true
		}
		gv := schema.GroupVersion{Group: obj.Spec.Group, Version: obj.Spec.Version}
		r := previous.remotes[gv]
		if r == nil || r.key != obj.key {
			old := r
			r = newRemote(a, obj.key, obj.APIService)
			if old != nil {
				r.delayCheck(old)
				if reflect.DeepEqual(old.spec.Service, r.spec.Service) {
					r.description.Store(old.description.Load()) // until the server responds again
				}
			}
		}
		r.setStored(availableCondition(obj.APIService))
		next.remotes[gv] = r
		key := serviceName{namespace: obj.Spec.Service.Namespace, name: obj.Spec.Service.Name}
		next.byService[key] = append(next.byService[key], r)
		return true
	})
	a.current.Store(next)
	for gv, r := range previous.remotes {
		if next.remotes[gv] != r {
			r.close()
		}
	}
	a.TriggerChecks()
	return next
}

// Registered iterates over the current APIServices. They are shared and must not be changed.
func (a *Aggregator) Registered() iter.Seq[*apiregistrationv1.APIService] {
	registrations := a.directory().registrations
	return func(yield func(*apiregistrationv1.APIService) bool) {
		for _, r := range registrations {
			if !yield(r.APIService) {
				return
			}
		}
	}
}

// decodeEntry decodes an APIService. If that fails, it logs the error and returns nil.
func (a *Aggregator) decodeEntry(e *objects.Entry) *registration {
	obj, err := a.Decode(e)
	if err != nil {
		a.Logger.Error("failed to decode an APIService; no requests to its server", "apiservice", e.Name(), "error", err)
		return nil
	}
	spec, _ := json.Marshal(obj.Spec) // cannot fail for strings and numbers
	return &registration{entry: e, APIService: obj, key: string(obj.UID) + string(spec)}
}

// availableCondition returns the condition Available of an APIService, or nil.
func availableCondition(s *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return nil
}

// Available reports whether the condition Available of an APIService is true.
func Available(s *apiregistrationv1.APIService) bool {
	c := availableCondition(s)
	return c != nil && c.Status == apiregistrationv1.ConditionTrue
}

// Unavailable returns the names of APIServices in names that do not exist or are not available,
// sorted.
func (a *Aggregator) Unavailable(names []string) []string {
	available := map[string]bool{}
	for s := range a.Registered() {
		available[s.Name] = Available(s)
	}
	var unavailable []string
	for _, name := range names {
		if !available[name] {
			unavailable = append(unavailable, name)
		}
	}
	slices.Sort(unavailable)
	return unavailable
}

// CheckAll schedules a check of each extension server.
func (a *Aggregator) CheckAll() {
	for _, r := range a.directory().remotes {
		r.scheduleCheck()
	}
	a.TriggerChecks()
}

// ServiceChanged schedules checks of the extension servers behind a service. The caller calls it
// when the service or its endpoints change.
func (a *Aggregator) ServiceChanged(namespace, name string) {
	behind := a.directory().byService[serviceName{namespace: namespace, name: name}]
	for _, r := range behind {
		r.scheduleCheck()
	}
	if len(behind) > 0 {
		a.TriggerChecks()
	}
}

// TriggerChecks makes Run look for due checks immediately.
func (a *Aggregator) TriggerChecks() {
	select {
	case a.trigger <- struct{}{}:
	default: // already triggered
	}
}

// Versions returns the group versions of extension servers for discovery.
func (a *Aggregator) Versions() []discovery.GroupVersion {
	a.Metrics.aggregated.Inc()
	remotes := a.directory().remotes
	var out []discovery.GroupVersion
	for _, gv := range slices.SortedFunc(maps.Keys(remotes), func(x, y schema.GroupVersion) int {
		return strings.Compare(x.String(), y.String())
	}) {
		if a.Local(gv) {
			continue
		}
		r := remotes[gv]
		description := r.description.Load()
		out = append(out, discovery.GroupVersion{
			Group:           gv.Group,
			Version:         gv.Version,
			GroupPriority:   int(r.spec.GroupPriorityMinimum),
			VersionPriority: int(r.spec.VersionPriority),
			Resources:       description.resources,
			Aggregated:      description.aggregated,
			Stale:           description.stale,
		})
	}
	return out
}

// LocalGroupVersions returns, for discovery, the group versions of APIServices without a service,
// except for built-in ones. Custom resources may serve them, or nothing does.
func (a *Aggregator) LocalGroupVersions() []discovery.GroupVersion {
	var out []discovery.GroupVersion
	for s := range a.Registered() {
		gv := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
		if s.Spec.Service == nil && gv.Group != "" && !a.Local(gv) {
			out = append(out, discovery.GroupVersion{
				Group: gv.Group, Version: gv.Version, Unserved: true,
				GroupPriority: int(s.Spec.GroupPriorityMinimum), VersionPriority: int(s.Spec.VersionPriority),
			})
		}
	}
	return out
}

// Run checks extension servers until ctx is canceled. Then it closes the connections to them.
func (a *Aggregator) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer a.closeAll() // runs last, when no goroutine uses the connections
	defer a.background.Wait()
	defer running.Wait()
	defer a.cancelWork()
	var writingLocal atomic.Bool
	slots := make(chan struct{}, a.MaxChecks)
	t := time.NewTicker(scheduleInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.trigger:
		case <-t.C:
		}
		started := time.Now()
		loaded := a.Store.Ready()
		names := a.directory().localToWrite
		switch {
		case len(names) == 0:
			a.localStarted.Store(loaded || a.localStarted.Load())
		case writingLocal.CompareAndSwap(false, true):
			running.Go(func() {
				defer writingLocal.Store(false)
				a.writeLocalConditions(ctx, names)
				a.localStarted.Store(true)
			})
		}
		for gv, r := range a.directory().remotes {
			if a.Local(gv) || !r.startCheckIfDue(a.Now()) {
				continue
			}
			running.Go(func() {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				defer func() { <-slots }()
				r.checkAndReport(ctx)
			})
		}
		a.Metrics.setUnavailable(a.directory())
		a.remoteStarted.Store(loaded || a.remoteStarted.Load())
		task.Throttle(ctx, started)
	}
}

// LocalStarted reports whether Run has tried to write the condition of every APIService without a
// service that existed at its start.
func (a *Aggregator) LocalStarted() bool { return a.localStarted.Load() }

// RemoteStarted reports whether Run has started the checks of all extension servers that
// APIServices named at its start. Their responses may still be missing.
func (a *Aggregator) RemoteStarted() bool { return a.remoteStarted.Load() }

// writeLocalConditions sets the condition Available of the named APIServices, which have no
// service. It pauses after each failure, so that Run does not retry immediately.
func (a *Aggregator) writeLocalConditions(ctx context.Context, names []string) {
	for _, name := range names {
		err := a.Write(ctx, name, apiregistration.LocalAvailable())
		if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) {
			continue
		}
		a.Logger.Warn("failed to update the condition of an APIService", "apiservice", name, "error", err)
		select {
		case <-time.After(firstRetryDelay):
		case <-ctx.Done():
		}
	}
}

// closeAll closes the connections to all extension servers.
func (a *Aggregator) closeAll() {
	for _, r := range a.current.Load().remotes {
		r.close()
	}
}

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
	// An unavailable server is checked again after firstRetryDelay. The delay doubles up to
	// checkInterval.
	firstRetryDelay = time.Second
	// scheduleInterval is the interval between searches for due checks.
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
	// Resolve returns host:port of a port of a service.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial connects to extension servers. If it is nil, connections are direct.
	Dial webhookclient.Dial
	// Certificate returns the client certificate for extension servers. It may return nil.
	Certificate func() *tls.Certificate
	// MaxRequests is the maximum number of requests that wait for one server. One user may have at
	// most half of them. 0 means no limit.
	MaxRequests int
	// MaxChecks is the maximum number of concurrent checks of servers. MaxPages is the number of
	// pages whose links are rewritten at a time.
	MaxChecks, MaxPages int
	// AcquireSlot, if set, acquires a slot for a request that upgrades its connection; see
	// reverseproxy.Proxy.
	AcquireSlot func(*http.Request) (leave func(), err error)
	// FollowRedirects passes redirects of extension servers to the client.
	FollowRedirects bool
	// Write sets the condition Available of an APIService.
	Write   func(ctx context.Context, name string, condition apiregistrationv1.APIServiceCondition) error
	Metrics *Metrics
	// Traces, if set, creates spans for requests to extension servers.
	Traces *tracing.Provider
	Logger *slog.Logger
	Now    func() time.Time
}

// Aggregator maps group versions to the servers that serve them. Run must be called to close it.
type Aggregator struct {
	Config
	trigger chan struct{} // triggers a search for due checks
	// workCtx ends with Run, which waits for the remaining work.
	workCtx context.Context
	endWork context.CancelFunc
	probes  sync.WaitGroup
	pages   *responselimit.PageLimiter
	// decoding serializes the decoding of documents, which may take much memory. Leaf lock.
	decoding sync.Mutex
	// settled and scheduled report the first pass of Run over the APIServices without a server and
	// over those with one.
	settled, scheduled atomic.Bool

	onChange []func()

	mu      sync.Mutex // serializes updates; acquired before the locks of remotes
	current atomic.Pointer[directory]
}

// directory is the state of all APIServices at one version.
type directory struct {
	version objects.Version
	remotes map[schema.GroupVersion]*remote
	// byService holds the remotes that use each service.
	byService map[service][]*remote
	// registrations holds the decoded entries by key.
	registrations map[string]*registration
	// local holds the names of APIServices that name no service: this server serves them.
	local []string
	// unsettled holds those of local whose condition Available is not yet true.
	unsettled []string
}

// service identifies a service.
type service struct{ namespace, name string }

// registration is a decoded entry.
type registration struct {
	entry *objects.Entry
	*apiregistrationv1.APIService
	key string // changes when the APIService denotes another server
}

// New returns an aggregator.
func New(c Config) *Aggregator {
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &Aggregator{Config: c, trigger: make(chan struct{}, 1), pages: responselimit.NewPageLimiter(c.MaxPages)}
	a.workCtx, a.endWork = context.WithCancel(context.Background())
	a.current.Store(&directory{remotes: map[schema.GroupVersion]*remote{}})
	return a
}

// OnChange registers a function that is called when the resources or the availability of extension
// servers change. It must be called before Run.
func (a *Aggregator) OnChange(changed func()) { a.onChange = append(a.onChange, changed) }

// Handler returns the handler of a group version that another server serves, otherwise nil.
func (a *Aggregator) Handler(gv schema.GroupVersion) http.Handler {
	if a.Local(gv) {
		return nil
	}
	if r := a.directory().remotes[gv]; r != nil {
		return r
	}
	return nil
}

// directory returns the directory of the current cache contents.
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
	next := &directory{version: s.Version(), remotes: map[schema.GroupVersion]*remote{}, byService: map[service][]*remote{}, registrations: map[string]*registration{}}
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
			if c, local := available(obj.APIService), apiregistration.LocalAvailable(); c == nil || !EqualConditions(c, &local) {
				next.unsettled = append(next.unsettled, obj.Name)
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
		r.setStored(available(obj.APIService))
		next.remotes[gv] = r
		key := service{obj.Spec.Service.Namespace, obj.Spec.Service.Name}
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

// Registered returns the current APIServices, decoded once for all callers. Callers must not change
// them.
func (a *Aggregator) Registered() iter.Seq[*apiregistrationv1.APIService] {
	read := a.directory().registrations
	return func(yield func(*apiregistrationv1.APIService) bool) {
		for _, r := range read {
			if !yield(r.APIService) {
				return
			}
		}
	}
}

// decodeEntry decodes an entry. It logs an error and returns nil on failure.
func (a *Aggregator) decodeEntry(e *objects.Entry) *registration {
	obj, err := a.Decode(e)
	if err != nil {
		a.Logger.Error("failed to decode an APIService; no requests to its server", "apiservice", e.Name(), "error", err)
		return nil
	}
	spec, _ := json.Marshal(obj.Spec) // only strings and numbers
	return &registration{e, obj, string(obj.UID) + string(spec)}
}

// available returns the condition Available of an APIService, or nil.
func available(s *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return nil
}

// Available reports whether the condition Available of an APIService is true.
func Available(s *apiregistrationv1.APIService) bool {
	c := available(s)
	return c != nil && c.Status == apiregistrationv1.ConditionTrue
}

// Unavailable returns those of the named APIServices, in order, that are not available.
func (a *Aggregator) Unavailable(names []string) []string {
	available := map[string]bool{}
	for s := range a.Registered() {
		available[s.Name] = Available(s)
	}
	var missing []string
	for _, name := range names {
		if !available[name] {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// CheckAll schedules a check of each server.
func (a *Aggregator) CheckAll() {
	for _, r := range a.directory().remotes {
		r.scheduleCheck()
	}
	a.TriggerChecks()
}

// ServiceChanged schedules checks of the servers behind a service. It is called when the service or
// its endpoints change.
func (a *Aggregator) ServiceChanged(namespace, name string) {
	behind := a.directory().byService[service{namespace, name}]
	for _, r := range behind {
		r.scheduleCheck()
	}
	if len(behind) > 0 {
		a.TriggerChecks()
	}
}

// TriggerChecks triggers a search for due checks, because an APIService changed.
func (a *Aggregator) TriggerChecks() {
	select {
	case a.trigger <- struct{}{}:
	default: // already triggered
	}
}

// Versions returns the group versions of extension servers for discovery.
func (a *Aggregator) Versions() []discovery.GroupVersion {
	a.Metrics.merging.Inc()
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
			Group: gv.Group, Version: gv.Version, GroupPriority: int(r.spec.GroupPriorityMinimum), VersionPriority: int(r.spec.VersionPriority),
			Resources: description.resources, Aggregated: description.aggregated, Stale: description.stale,
		})
	}
	return out
}

// LocalGroupVersions returns the group versions of the APIServices that name no server and whose group
// version is not built in.
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

// Run checks extension servers until ctx ends.
func (a *Aggregator) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer a.closeAll() // after all users of the connections have ended
	defer a.probes.Wait()
	defer running.Wait()
	defer a.endWork()
	var settling atomic.Bool
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
		names := a.directory().unsettled
		switch {
		case len(names) == 0:
			a.settled.Store(loaded || a.settled.Load())
		case settling.CompareAndSwap(false, true):
			running.Go(func() {
				defer settling.Store(false)
				a.writeLocalConditions(ctx, names)
				a.settled.Store(true)
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
		a.Metrics.unavailable(a.directory())
		a.scheduled.Store(loaded || a.scheduled.Load())
		task.Throttle(ctx, started)
	}
}

// LocalStarted reports whether Run has tried to write the condition of every APIService without a
// server that existed at its start.
func (a *Aggregator) LocalStarted() bool { return a.settled.Load() }

// RemoteStarted reports whether Run has scheduled the checks of all servers that APIServices named
// at its start. It does not wait for their responses.
func (a *Aggregator) RemoteStarted() bool { return a.scheduled.Load() }

// writeLocalConditions sets the condition Available of APIServices without a server. After a
// failure it waits, so that the next attempt comes later.
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

// closeAll closes the connections to all servers.
func (a *Aggregator) closeAll() {
	for _, r := range a.current.Load().remotes {
		r.close()
	}
}

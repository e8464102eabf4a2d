package aggregate

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
	"binnacle/services/apiserver/internal/answers"
	apiregistrationv1 "binnacle/services/apiserver/internal/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/callout"
	"binnacle/services/apiserver/internal/discovery"
	"binnacle/services/apiserver/internal/registry/apiregistration"
	"binnacle/services/apiserver/internal/watchcache"
)

const (
	// checkEvery is between two checks of a server that is there.
	checkEvery = 30 * time.Second
	// A server that is not there is looked for after firstRetry, then less often, up
	// to checkEvery.
	firstRetry = time.Second
	// tick is how often it is looked what is due.
	tick = 250 * time.Millisecond
	// maxChecks run at a time.
	maxChecks = 16
)

// Config is what the aggregator works with.
type Config struct {
	// APIServices are read from Store by Decode.
	Store  *watchcache.Store
	Decode func(*watchcache.Entry) (*apiregistrationv1.APIService, error)
	// Local tells whether this server answers for a group version itself, as it is built in.
	Local func(schema.GroupVersion) bool
	// Service and Endpoints look up what an APIService names; what does not exist is
	// a NotFound error.
	Service   func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	Endpoints func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error)
	// Resolve returns host:port of a port of a service.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial leads to extension servers; nil goes straight there.
	Dial callout.Dial
	// Certificate shows extension servers who asks; it may return nil.
	Certificate func() *tls.Certificate
	// MaxRequests bounds the requests that wait for the same server, of which one user
	// has half at most; 0 is no bound.
	MaxRequests int
	// Place, if set, gives a place to a request that upgrades its connection, as carry.Way's.
	Place func(*http.Request) (leave func(), err error)
	// FollowRedirects passes redirects of extension servers on.
	FollowRedirects bool
	// Write sets the condition Available of an APIService.
	Write func(ctx context.Context, name string, condition apiregistrationv1.APIServiceCondition) error
	// Changed is told when what extension servers serve, or whether they do, has
	// changed.
	Changed func()
	Metrics *Metrics
	// Traces, if set, makes spans of what goes on to servers.
	Traces *tracing.Provider
	Logger *slog.Logger
	Now    func() time.Time
}

// Aggregator knows who answers for which group version. It has to be closed.
type Aggregator struct {
	Config
	wake chan struct{}
	// living ends with Run; what goes on beside it is waited for.
	living context.Context
	die    context.CancelFunc
	probes sync.WaitGroup
	pages  *answers.Room
	// decoding is for one document at a time, which may take much memory. A leaf.
	decoding sync.Mutex
	// settled and scheduled report the first pass of Run over the APIServices without a server
	// and over those with one.
	settled, scheduled atomic.Bool

	mu      sync.Mutex // serializes making; before those of remotes
	current atomic.Pointer[directory]
}

// directory is what APIServices said at some time.
type directory struct {
	version watchcache.Version
	remotes map[schema.GroupVersion]*remote
	// behind are the remotes by the services that lead to them.
	behind map[service][]*remote
	// read is what entries say, by their keys.
	read map[string]*registration
	// ours are the names of APIServices without a server: this one answers for them.
	ours []string
	// unsettled are those of ours whose condition does not say that they are available.
	unsettled []string
}

// service names one.
type service struct{ namespace, name string }

// registration is what an entry says.
type registration struct {
	entry *watchcache.Entry
	*apiregistrationv1.APIService
	key string // another one when another server is meant
}

// New makes an aggregator.
func New(c Config) *Aggregator {
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &Aggregator{Config: c, wake: make(chan struct{}, 1), pages: answers.NewRoom()}
	a.living, a.die = context.WithCancel(context.Background())
	a.current.Store(&directory{remotes: map[schema.GroupVersion]*remote{}})
	return a
}

// Handler is who answers for a group version; nil when nobody else does.
func (a *Aggregator) Handler(gv schema.GroupVersion) http.Handler {
	if a.Local(gv) {
		return nil
	}
	if r := a.directory().remotes[gv]; r != nil {
		return r
	}
	return nil
}

// directory is that of what the cache shows now.
func (a *Aggregator) directory() *directory {
	if d := a.current.Load(); d.version == a.Store.Snapshot().Version() {
		return d
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.Store.Snapshot()
	before := a.current.Load()
	if before.version == s.Version() {
		return before
	}
	next := &directory{version: s.Version(), remotes: map[schema.GroupVersion]*remote{}, behind: map[service][]*remote{}, read: map[string]*registration{}}
	s.Ascend(a.Store.Prefix(), "", func(e *watchcache.Entry) bool {
		obj := before.read[e.Key()]
		if obj == nil || obj.entry != e {
			if obj = a.read(e); obj == nil {
				return true
			}
		}
		next.read[e.Key()] = obj
		if obj.Spec.Service == nil {
			next.ours = append(next.ours, obj.Name)
			if c, local := available(obj.APIService), apiregistration.LocalAvailable(); c == nil || !Same(c, &local) {
				next.unsettled = append(next.unsettled, obj.Name)
			}
			return true
		}
		gv := schema.GroupVersion{Group: obj.Spec.Group, Version: obj.Spec.Version}
		r := before.remotes[gv]
		if r == nil || r.key != obj.key {
			had := r
			r = newRemote(a, obj.key, obj.APIService)
			if had != nil && reflect.DeepEqual(had.spec.Service, r.spec.Service) {
				r.known.Store(had.known.Load()) // until the server answers again
			}
		}
		r.hear(available(obj.APIService))
		next.remotes[gv] = r
		at := service{obj.Spec.Service.Namespace, obj.Spec.Service.Name}
		next.behind[at] = append(next.behind[at], r)
		return true
	})
	a.current.Store(next)
	for gv, r := range before.remotes {
		if next.remotes[gv] != r {
			r.close()
		}
	}
	a.Wake()
	return next
}

// Registered are the APIServices that the cache shows now, read once for all who ask. They are not to be
// changed.
func (a *Aggregator) Registered() iter.Seq[*apiregistrationv1.APIService] {
	read := a.directory().read
	return func(yield func(*apiregistrationv1.APIService) bool) {
		for _, r := range read {
			if !yield(r.APIService) {
				return
			}
		}
	}
}

// read is what an entry says; nil when that cannot be told.
func (a *Aggregator) read(e *watchcache.Entry) *registration {
	obj, err := a.Decode(e)
	if err != nil {
		a.Logger.Error("an APIService cannot be read; its server is not asked", "apiservice", e.Name(), "error", err)
		return nil
	}
	spec, _ := json.Marshal(obj.Spec) // texts and numbers
	return &registration{e, obj, string(obj.UID) + string(spec)}
}

// available is the condition that an APIService shows; nil when it has none.
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

// Poke has everything checked soon.
func (a *Aggregator) Poke() {
	for _, r := range a.directory().remotes {
		r.stir()
	}
	a.Wake()
}

// Moved has the servers behind a service checked soon: it changed, or its endpoints did. Others
// are not asked for that.
func (a *Aggregator) Moved(namespace, name string) {
	behind := a.directory().behind[service{namespace, name}]
	for _, r := range behind {
		r.stir()
	}
	if len(behind) > 0 {
		a.Wake()
	}
}

// Wake has it looked soon what is due: an APIService changed.
func (a *Aggregator) Wake() {
	select {
	case a.wake <- struct{}{}:
	default: // it will be
	}
}

// Versions are the group versions of extension servers as discovery shows them.
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
		known := r.known.Load()
		out = append(out, discovery.GroupVersion{
			Group: gv.Group, Version: gv.Version, GroupPriority: int(r.spec.GroupPriorityMinimum), VersionPriority: int(r.spec.VersionPriority),
			Resources: known.resources, Aggregated: known.aggregated, Stale: known.stale,
		})
	}
	return out
}

// Announced returns the group versions of the APIServices that name no server and whose group
// version is not built in.
func (a *Aggregator) Announced() []discovery.GroupVersion {
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
	defer a.closeAll() // when nobody uses connections any more
	defer a.probes.Wait()
	defer running.Wait()
	defer a.die()
	var settling atomic.Bool
	slots := make(chan struct{}, maxChecks)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-t.C:
		}
		begun, loaded := time.Now(), a.Store.Ready()
		switch names := a.directory().unsettled; {
		case len(names) == 0:
			a.settled.Store(loaded || a.settled.Load())
		case settling.CompareAndSwap(false, true):
			running.Go(func() {
				defer settling.Store(false)
				a.settle(ctx, names)
				a.settled.Store(true)
			})
		}
		for gv, r := range a.directory().remotes {
			if a.Local(gv) || !r.due(a.Now()) {
				continue
			}
			running.Go(func() {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				defer func() { <-slots }()
				r.look(ctx)
			})
		}
		a.Metrics.unavailable(a.directory())
		a.scheduled.Store(loaded || a.scheduled.Load())
		task.Rest(ctx, begun)
	}
}

// LocalStarted reports whether Run has tried to write the condition of every APIService without
// a server that existed at its start.
func (a *Aggregator) LocalStarted() bool { return a.settled.Load() }

// RemoteStarted reports whether Run has scheduled the checks of all servers that APIServices
// named at its start. It does not wait for their answers.
func (a *Aggregator) RemoteStarted() bool { return a.scheduled.Load() }

// settle writes the condition of APIServices that have no server, or lost it. After a
// failure it waits before it returns, so that the next attempt comes later.
func (a *Aggregator) settle(ctx context.Context, names []string) {
	for _, name := range names {
		err := a.Write(ctx, name, apiregistration.LocalAvailable())
		if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) {
			continue
		}
		a.Logger.Warn("the condition of an APIService could not be written", "apiservice", name, "error", err)
		select {
		case <-time.After(firstRetry):
		case <-ctx.Done():
		}
	}
}

func (a *Aggregator) closeAll() {
	for _, r := range a.current.Load().remotes {
		r.close()
	}
}

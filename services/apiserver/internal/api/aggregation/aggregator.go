package aggregation

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// Config holds the dependencies of an Aggregator.
type Config struct {
	// Store is the watch cache of APIServices. Decode decodes an entry.
	Store  *watchcache.Store
	Decode func(*objects.Entry) (*apiregistrationv1.APIService, error)
	// Local reports whether this server itself serves a group version because it is built in.
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

// New returns an aggregator.
func New(config Config) *Aggregator {
	if config.Now == nil {
		config.Now = time.Now
	}
	a := &Aggregator{Config: config, trigger: make(chan struct{}, 1), pages: responselimit.NewPageLimiter(config.MaxPages)}
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
	if r := a.currentDirectory().remotes[gv]; r != nil {
		return r
	}
	return nil
}

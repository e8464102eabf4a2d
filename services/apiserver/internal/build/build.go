package build

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/features"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/task"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/routing"
)

// apiServer holds the parts of the server, in the order in which they are created.
type apiServer struct {
	listener    *listener
	base        *base
	catalogs    *catalogs
	stores      *stores
	caches      *caches
	sets        *apiSets
	custom      *customResources
	security    *security
	delegates   *delegates
	controllers *controllers
}

// Run runs the server until ctx is canceled or a task fails, and then shuts it down gracefully.
func Run(ctx context.Context, options *config.Options, log *slog.Logger) error {
	enableContentionProfiles(&options.Debug)
	lifetime := &lifecycle{}
	defer lifetime.close()
	if _, err := build(ctx, options, log, lifetime); err != nil {
		return err
	}
	return lifetime.run(ctx)
}

// build creates the parts of the server. It adds their tasks and their release functions to
// lifetime, even if it returns an error. The caller must close lifetime.
func build(ctx context.Context, options *config.Options, log *slog.Logger, lifetime *lifecycle) (server *apiServer, err error) {
	options.Features.Warn(log)
	options.Compatibility.Warn(log)
	options.WarnInsecure(log)

	server = &apiServer{}
	registry := metrics.New()
	if server.listener, err = newListener(options, log, registry, lifetime); err != nil {
		return nil, err
	}
	if server.base, err = newBase(ctx, options, log, registry, server.listener, lifetime); err != nil {
		return nil, err
	}
	audit, err := newAuditing(server.base, &options.Audit, overload.PrincipalLimiter{Queue: server.listener.server.LongResponses()})
	if err != nil {
		return nil, err
	}
	if server.catalogs, err = newCatalogs(server.base, options); err != nil {
		return nil, err
	}
	if server.stores, err = newStores(ctx, server.base, options, server.catalogs, audit.auditor); err != nil {
		return nil, err
	}
	if server.caches, err = newCaches(server.base, options, server.catalogs, server.stores); err != nil {
		return nil, err
	}
	return server, server.serveAPI(ctx, options, audit)
}

// serveAPI creates the parts that serve the API from the stores and caches.
//
// Some parts need a part that is created later. The internal client needs the writer, and the
// writer needs admission, which needs the internal client. The client of webhooks needs the handler
// of all requests, because this server itself may serve a webhook. Such parts get a function that
// returns the later part. They call it only after the server has started.
func (a *apiServer) serveAPI(ctx context.Context, options *config.Options, audit *auditing) (err error) {
	base, caches, stores, httpsServer := a.base, a.caches, a.stores, a.listener.server
	var writer *writes.Writer
	var handler http.Handler
	laterWriter := func() *writes.Writer { return writer }
	laterHandler := func() http.Handler { return handler }
	compiler := sync.OnceValues(expressions.New)

	// 1. The parts that requests pass before they reach the handlers.
	network := newNetwork(base, caches, options.Aggregation.Routing, laterHandler)
	a.sets = newAPISets(base, caches, stores, audit.auditor, laterWriter)
	if a.custom, err = newCustomResources(base, caches, stores, a.sets, network); err != nil {
		return err
	}
	if a.security, err = newSecurity(ctx, base, options, caches, a.sets.client, audit); err != nil {
		return err
	}
	authz := a.security.authz

	// 2. The parts that write objects.
	serviceAllocator := newAllocator(base, &options.Services, caches, stores, a.sets.client)
	chain, err := newAdmission(base, &options.Admission,
		caches, a.sets, authz, network, compiler, laterWriter, httpsServer.LargeRequests())
	if err != nil {
		return err
	}
	barriers := newWriteBarriers(a.custom, a.security)
	writer = newWriter(base, &options.Requests, caches, stores, a.sets, authz, chain, serviceAllocator, barriers)

	// 3. The handlers, the other servers to which requests are proxied, and the controllers.
	api, err := newHandlers(base, options, caches, stores, a.sets, a.security, writer, httpsServer)
	if err != nil {
		return err
	}
	if a.delegates, err = newDelegates(base, options, caches, stores, a.sets, network, api.ProxyLimit.Acquire); err != nil {
		return err
	}
	info := newExtensionInfo(base, &options.Authentication, httpsServer.ClientCABundle(), caches)
	a.controllers = newControllers(base, options, caches, stores, a.sets, a.custom, authz, serviceAllocator, info)
	if options.Admission.TypeChecks {
		newTypeChecks(base, a.catalogs, a.sets, a.custom.informer, compiler)
	}

	// 4. The handler of all requests, and the tasks that accept them.
	handler, err = a.newMainHandler(options, api)
	if err != nil {
		return err
	}
	a.addServingTasks(options, handler)
	return nil
}

// newMainHandler creates the handler of all requests. It also creates the documents about the API
// and the health checks, which the handler serves.
func (a *apiServer) newMainHandler(options *config.Options, api *handlers.API) (http.Handler, error) {
	base, security, extensions := a.base, a.security, a.delegates.extensions
	otherPaths := func() []string { return pathsOutsideAPI(options, a.listener.health, security.authn.issuerPaths()) }
	docs, err := newDocuments(base, options, a.catalogs, a.sets.respond,
		security.authn.documents != nil, otherPaths, extensions, a.custom.informer)
	if err != nil {
		return nil, err
	}
	registrations := newRegistrations(base, a.caches, a.sets, a.custom.informer, extensions)
	followAPIServices(base, a.caches, extensions, docs.custom, registrations)
	ready := &readiness{
		gates:       base.gates,
		stores:      a.stores,
		caches:      a.caches,
		custom:      a.custom,
		security:    security,
		delegates:   a.delegates,
		controllers: a.controllers,
	}
	ready.addHealthChecks(a.listener.health, options)
	routes, err := newRouter(base, options, a.listener, a.stores, security, api, docs)
	if err != nil {
		return nil, err
	}
	return newHandler(base, options, a.listener.server, routes, a.sets, security, a.custom, a.delegates,
		a.controllers.storageVersions, ready.reloading)
}

// addServingTasks adds the tasks that accept requests: the HTTPS server with the handler of all
// requests, and the debug socket if it is enabled.
func (a *apiServer) addServingTasks(options *config.Options, handler http.Handler) {
	lifetime, httpsServer := a.base.lifetime, a.listener.server
	lifetime.whileServing("https", func(ctx context.Context) error {
		done := make(chan struct{})
		defer close(done)
		// Requests must not wait for a slow audit backend during a shutdown.
		go func() {
			select {
			case <-httpsServer.LongRunningStop():
			case <-done:
			}
			a.security.audit.beginShutdown()
		}()
		return httpsServer.Run(ctx, handler, server.LongRunning(a.sets.kinds, a.delegates.forOtherServers()))
	})
	if path := options.Debug.Socket; path != "" {
		lifetime.whileServing("debug socket", func(ctx context.Context) error {
			if err := routing.ServeProfiles(ctx, path); err != nil {
				return fmt.Errorf("--debug-socket-path: %w", err)
			}
			return nil
		})
	}
}

// newWriteBarriers returns the functions that a write of a resource calls before its response. They
// wait until the write has taken effect in this server.
func newWriteBarriers(custom *customResources, sec *security) writeBarriers {
	waitForPolicy, waitForFlow := sec.authz.waitForRevision, sec.flow.WaitForRevision
	return writeBarriers{
		definitionsResource().GroupResource():       custom.waitForRevision,
		flowResource("flowschemas"):                 waitForFlow,
		flowResource("prioritylevelconfigurations"): waitForFlow,
		rbacResource("roles"):                       waitForPolicy,
		rbacResource("clusterroles"):                waitForPolicy,
		rbacResource("rolebindings"):                waitForPolicy,
		rbacResource("clusterrolebindings"):         waitForPolicy,
	}
}

// lifecycle lists all tasks of the server, and the functions that release its parts. A constructor
// adds both when it creates a part, so they are in the order of construction. A shutdown first
// stops the serving tasks, then the background tasks, and then releases the parts from the last to
// the first.
type lifecycle struct {
	// background tasks run from the start until the last request is complete.
	background []task.Task
	// serving tasks run while the server accepts requests.
	serving []task.Task
	// release holds the functions that release the parts.
	release []func()
}

// inBackground adds a background task.
func (l *lifecycle) inBackground(name string, run func(context.Context) error) {
	l.background = append(l.background, task.Task{Name: name, Run: run})
}

// whileServing adds a task that runs while the server accepts requests.
func (l *lifecycle) whileServing(name string, run func(context.Context) error) {
	l.serving = append(l.serving, task.Task{Name: name, Run: run})
}

// onClose adds a function that releases a part.
func (l *lifecycle) onClose(release func()) { l.release = append(l.release, release) }

// run runs all tasks until ctx is canceled or one of them fails.
func (l *lifecycle) run(ctx context.Context) error {
	return task.Around(ctx, task.Task{
		Name: "server",
		Run: func(ctx context.Context) error {
			return task.Run(ctx, l.serving...)
		},
	}, l.background...)
}

// close releases all parts, from the last to the first.
func (l *lifecycle) close() {
	for i := len(l.release) - 1; i >= 0; i-- {
		l.release[i]()
	}
}

// base holds the dependencies that most constructors need. It does not change after newBase.
type base struct {
	log      *slog.Logger
	metrics  *prometheus.Registry
	gates    *features.Gates
	limits   config.Limits
	lifetime *lifecycle
	// egress selects the proxies to other networks; nil connects directly.
	egress *egress.Selector
	traces *tracing.Provider // nil if tracing is off
	// webhookMetrics measures requests to webhooks and other services.
	webhookMetrics *webhookclient.Metrics
	// host is the name of this machine, and identity the name of this replica.
	host, identity string
	// root is the prefix of all keys. It starts with a slash and does not end with one.
	root string
	endpoint
}

// endpoint is the port that the server listens on, and the host:port at which clients reach it.
type endpoint struct {
	port    int
	address string
}

// newBase creates the dependencies that most constructors need.
func newBase(
	ctx context.Context,
	options *config.Options,
	log *slog.Logger,
	metrics *prometheus.Registry,
	bound *listener,
	lifetime *lifecycle,
) (*base, error) {
	host, err := options.Hostname()
	if err != nil {
		return nil, err
	}
	if err := options.Features.Register(metrics); err != nil {
		return nil, err
	}
	result := &base{
		log:            log,
		metrics:        metrics,
		gates:          options.Features,
		limits:         options.Bounds,
		lifetime:       lifetime,
		webhookMetrics: webhookclient.NewMetrics(metrics),
		host:           host,
		identity:       bootstrap.Identity(host),
		root:           path.Join("/", options.Etcd.Prefix),
		endpoint:       endpoint{port: bound.port, address: bound.address},
	}
	if result.egress, err = newEgress(options.Compatibility.EgressSelector, metrics); err != nil {
		return nil, err
	}
	result.traces, err = result.newTracing(ctx, &options.Tracing)
	if err != nil || result.traces == nil {
		return result, err
	}
	result.webhookMetrics.Traced(result.traces)
	lifetime.onClose(result.traces.Close)
	return result, nil
}

// newEgress creates the egress selector from a configuration file. It returns nil if file is empty.
func newEgress(file string, metrics prometheus.Registerer) (*egress.Selector, error) {
	if file == "" {
		return nil, nil
	}
	configuration, err := egress.Read(file)
	if err != nil {
		return nil, err
	}
	selector, err := egress.New(configuration, metrics)
	if err != nil {
		return nil, fmt.Errorf("failed to setup egress selector: %w", err)
	}
	return selector, nil
}

// newTracing creates the trace provider. Without a configuration it returns nil, and requests have
// no overhead.
func (base *base) newTracing(ctx context.Context, options *tracing.Options) (*tracing.Provider, error) {
	file, err := options.Read()
	if file == nil || err != nil {
		return nil, err
	}
	if !base.gates.Enabled(features.APIServerTracing) {
		return nil, errors.New("APIServerTracing feature is not enabled, but tracing config file was provided")
	}
	return tracing.New(ctx, tracing.Config{
		Configuration: file,
		Service:       config.Name,
		Instance:      base.identity,
		Dial:          base.egress.DialerFor(egress.ControlPlane),
		Logger:        base.log,
		Metrics:       base.metrics,
	})
}

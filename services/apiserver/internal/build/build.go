package build

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/server"
)

// apiServer is the assembled server.
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

// Run runs the server until ctx ends, then shuts it down gracefully.
func Run(ctx context.Context, o *config.Options, log *slog.Logger) error {
	countContention(&o.Debug)
	life := &lifecycle{}
	defer life.close()
	if _, err := build(ctx, o, log, life); err != nil {
		return err
	}
	return life.run(ctx)
}

// build creates the parts of the server. It adds to life what runs and what has to be released, also
// if it returns an error.
func build(ctx context.Context, o *config.Options, log *slog.Logger, life *lifecycle) (a *apiServer, err error) {
	o.Features.Warn(log)
	o.Compatibility.Warn(log)
	o.WarnInsecure(log)
	a = &apiServer{}
	registry := metrics.New()
	if a.listener, err = newListener(o, log, registry, life); err != nil {
		return nil, err
	}
	if a.base, err = newBase(ctx, o, log, registry, a.listener, life); err != nil {
		return nil, err
	}
	audit, err := newAuditing(a.base, &o.Audit, server.Permits{Queue: a.listener.server.LongResponses()})
	if err != nil {
		return nil, err
	}
	if a.catalogs, err = newCatalogs(a.base, o); err != nil {
		return nil, err
	}
	if a.stores, err = newStores(ctx, a.base, o, a.catalogs, audit.auditor); err != nil {
		return nil, err
	}
	if a.caches, err = newCaches(a.base, o, a.catalogs, a.stores); err != nil {
		return nil, err
	}
	return a, a.serveAPI(ctx, o, audit)
}

// serveAPI creates the parts that serve the API from the stores and caches.
//
// The client of the server itself writes through the writer, and the writer needs admission, which
// uses the client. Webhooks may be services that this server serves. These parts refer to later ones
// by functions, which are called once the server runs.
func (a *apiServer) serveAPI(ctx context.Context, o *config.Options, audit *auditing) (err error) {
	b, k, s, front := a.base, a.caches, a.stores, a.listener.server
	var writer *writes.Writer
	var handler http.Handler
	laterWriter, laterHandler := func() *writes.Writer { return writer }, func() http.Handler { return handler }
	compiler := sync.OnceValues(expressions.New)

	network := newNetwork(b, k, o.Aggregation.Routing, laterHandler)
	a.sets = newAPISets(b, k, s, audit.auditor, laterWriter)
	if a.custom, err = newCustomResources(b, k, s, a.sets, network); err != nil {
		return err
	}
	if a.security, err = newSecurity(ctx, b, o, k, a.sets.client, audit); err != nil {
		return err
	}
	services := newAllocator(b, &o.Services, k, s, a.sets.client)
	chain, err := newAdmission(b, &o.Admission, k, a.sets, a.security.authz, network, compiler, laterWriter, front.LargeRequests())
	if err != nil {
		return err
	}
	writer = newWriter(b, &o.Requests, k, s, a.sets, a.security.authz, chain, services, effects(a.custom, a.security))
	api, err := newHandlers(b, o, k, s, a.sets, a.security, writer, front)
	if err != nil {
		return err
	}
	if a.delegates, err = newDelegates(b, o, k, s, a.sets, network, api.ProxyLimit.Enter); err != nil {
		return err
	}
	info := newExtensionInfo(b, &o.Authentication, front.ClientCABundle(), k)
	a.controllers = newControllers(b, o, k, s, a.sets, a.custom, a.security.authz, services, info)
	if o.Admission.TypeChecks {
		newTypeChecks(b, a.catalogs, a.sets, a.custom.informer, compiler)
	}
	handler, err = a.serve(o, api)
	return err
}

// serve creates the documents about the API, the health checks and the handler of all requests, and
// serves them.
func (a *apiServer) serve(o *config.Options, api *handlers.API) (http.Handler, error) {
	b, sec, remotes := a.base, a.security, a.delegates.extensions
	others := func() []string { return paths(o, a.listener.health, sec.authn.issuerPaths()) }
	docs, err := newDocuments(b, o, a.catalogs, a.sets.respond, sec.authn.documents != nil, others, remotes, a.custom.informer)
	if err != nil {
		return nil, err
	}
	registrations := newRegistrations(b, a.caches, a.sets, a.custom.informer, remotes)
	followAPIServices(b, a.caches, remotes, docs.custom, registrations)
	ready := &readiness{gates: b.gates, stores: a.stores, caches: a.caches, custom: a.custom, security: sec, delegates: a.delegates, controllers: a.controllers}
	ready.addHealthChecks(a.listener.health, o)
	routes, err := newMux(b, o, a.listener, a.stores, sec, api, docs)
	if err != nil {
		return nil, err
	}
	handler, err := newHandler(b, o, a.listener.server, routes, a.sets, sec, a.custom, a.delegates, a.controllers.storageVersions, ready.reloading)
	if err != nil {
		return nil, err
	}
	b.life.whileServing("https", func(ctx context.Context) error {
		done := make(chan struct{})
		defer close(done)
		go func() { // requests must not wait for a slow audit log during shutdown
			select {
			case <-a.listener.server.LongRunningStop():
			case <-done:
			}
			sec.audit.shuttingDown()
		}()
		return a.listener.server.Run(ctx, handler, server.LongRunning(a.sets.kinds, a.delegates.foreign()))
	})
	if path := o.Debug.Socket; path != "" {
		b.life.whileServing("debug socket", func(ctx context.Context) error {
			if err := server.ServeProfiles(ctx, path); err != nil {
				return fmt.Errorf("--debug-socket-path: %w", err)
			}
			return nil
		})
	}
	return handler, nil
}

// effects returns how writes wait until they have taken effect in this server.
func effects(custom *customResources, sec *security) settled {
	policy, flow := sec.authz.settled, sec.flow.settled
	return settled{
		definitions().GroupResource(): custom.settled,
		flowResource("flowschemas"):   flow, flowResource("prioritylevelconfigurations"): flow,
		rbacResource("roles"): policy, rbacResource("clusterroles"): policy, rbacResource("rolebindings"): policy, rbacResource("clusterrolebindings"): policy,
	}
}

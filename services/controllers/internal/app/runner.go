package app

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/features"
	"binnacle/libs/filewatch"
	"binnacle/libs/quota"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/controllers/internal/certificaterequests"
	"binnacle/services/controllers/internal/clusterroles"
	"binnacle/services/controllers/internal/events"
	"binnacle/services/controllers/internal/finishedjobs"
	"binnacle/services/controllers/internal/garbagecollector"
	"binnacle/services/controllers/internal/garbagecollector/graph"
	"binnacle/services/controllers/internal/namespaces"
	"binnacle/services/controllers/internal/quotas"
	"binnacle/services/controllers/internal/resources"
	"binnacle/services/controllers/internal/rootca"
	"binnacle/services/controllers/internal/serviceaccounts"
	"binnacle/services/controllers/internal/workers"
)

// runner runs the selected controllers.
type runner struct {
	options *Options
	clients *clients
	config  *rest.Config
	log     *slog.Logger
	queues  workqueue.MetricsProvider
	// builder fills the graph of the current run. It is nil if no run is active or needs a graph.
	builder atomic.Pointer[graph.Builder]
}

// check is a readiness check. It fails while the objects of the graph are listed for the first time.
func (r *runner) check(req *http.Request) error {
	if builder := r.builder.Load(); builder != nil {
		return builder.Check(req)
	}
	return nil
}

// run runs the selected controllers until ctx ends. All state in memory is new in each run.
func (r *runner) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	current := &controllerRun{
		runner:    r,
		selected:  selection(r.options.Controllers),
		resources: resources.NewCache(r.clients.discovery),
	}
	current.fail = func(err error) {
		if err != nil && ctx.Err() == nil {
			current.once.Do(func() { current.err = err })
			cancel()
		}
	}
	current.startGraph(ctx)
	current.startNamespaced(ctx)
	current.startOthers(ctx)
	r.log.Info("controllers started", "controllers", current.started)
	<-ctx.Done()
	current.group.Wait()
	r.builder.Store(nil)
	if current.err != nil {
		return current.err
	}
	return ctx.Err()
}

// controllerRun is one run of the selected controllers.
type controllerRun struct {
	*runner
	selected  selection
	resources *resources.Cache
	group     sync.WaitGroup
	started   []string    // names of the started controllers
	fail      func(error) // ends the run with an error; nil has no effect

	once sync.Once // guards the first write of err
	err  error     // the first failure; read after group.Wait
}

// startSelected runs a controller if it is selected.
func (c *controllerRun) startSelected(name string, run func() error) {
	if c.selected.isSelected(name) {
		c.started = append(c.started, name)
		c.group.Go(func() { c.fail(run()) })
	}
}

// startGraph starts the controllers that need the graph.
func (c *controllerRun) startGraph(ctx context.Context) {
	collectsGarbage := c.selected.isSelected(garbagecollector.Name)
	countsQuotas := c.selected.isSelected(quotas.Name)
	if !collectsGarbage && !countsQuotas {
		return
	}

	// 1. Create the garbage collector and the graph. Changes in the graph reach the builder and the
	// quota controller, which are created after it.
	recorder := events.New(events.Config{Client: c.clients.events, Component: garbagecollector.Component, Log: c.log})
	c.group.Go(func() { recorder.Run(ctx) })

	collector := garbagecollector.New(garbagecollector.Config{
		Client: c.clients.collector, Resources: c.resources, Log: c.log, Queues: c.queues, Workers: c.options.GCWorkers,
		Events: recorder,
	})
	var config graph.Config
	if collectsGarbage {
		config.Tasks = collector.Tasks()
	}
	// Both are assigned below, before the builder runs and the graph changes.
	var builder *graph.Builder
	var quotaController *quotas.Controller
	config.Changed = func(resource *resources.Resource, namespace string, deleted bool) {
		if graph.Definitions(resource.GroupResource()) {
			builder.DefinitionsChanged()
		}
		if quotaController != nil {
			quotaController.Changed(resource, namespace, deleted)
		}
	}
	ownerGraph := graph.New(config)
	builder = graph.NewBuilder(graph.BuilderConfig{Graph: ownerGraph, Resources: c.resources, Client: c.clients.graphMetadata, Log: c.log})

	// 2. Create the quota controller, which takes numbers of objects from the graph.
	enabled := c.options.Features.Enabled
	if countsQuotas {
		quotaController = quotas.New(quotas.Config{
			Clients: c.clients.quotas, Resources: c.resources, Counts: builder, Log: c.log, Queues: c.queues,
			Workers: c.options.QuotaWorkers, Resync: c.options.QuotaResync,
			Gates: quota.Gates{
				InPlaceResize: enabled(features.InPlacePodVerticalScaling), PodLevel: enabled(features.PodLevelResources),
				Devices: enabled(features.DynamicResourceAllocation), AttributesClasses: enabled(features.VolumeAttributesClass),
			},
		})
	}

	// 3. Start all of them.
	c.builder.Store(builder)
	c.group.Go(func() { builder.Run(ctx) })
	c.startSelected(garbagecollector.Name, func() error { collector.Run(ctx, ownerGraph, builder.InitialListDone()); return nil })
	c.startSelected(quotas.Name, func() error { return quotaController.Run(ctx, builder.InitialListDone()) })
}

// startNamespaced starts the controllers that work on each namespace.
func (c *controllerRun) startNamespaced(ctx context.Context) {
	informer := workers.NewInformer(c.clients.allNamespaces, &corev1.Namespace{}, "", c.options.NamespaceResync, cache.Indexers{})
	if err := informer.SetTransform(workers.StripMetadata); err != nil {
		c.fail(err)
		return
	}
	c.startSelected(namespaces.Name, func() error {
		return namespaces.New(namespaces.Config{
			Client: c.clients.namespaces, Pods: c.clients.namespacePods, Metadata: c.clients.namespacesMetadata,
			Resources: c.resources, Namespaces: informer,
			Log: c.log, Queues: c.queues, Workers: c.options.NamespaceWorkers,
		}).Run(ctx)
	})
	c.startSelected(serviceaccounts.Name, func() error {
		return serviceaccounts.New(serviceaccounts.Config{
			Accounts:   c.clients.accounts,
			Namespaces: informer,
			Log:        c.log,
			Queues:     c.queues,
		}).Run(ctx)
	})
	c.startSelected(rootca.Name, func() error { return c.runRootCA(ctx, informer) })
	c.group.Go(func() { informer.RunWithContext(ctx) })
}

// runRootCA publishes the CA certificates, also after they change.
func (c *controllerRun) runRootCA(ctx context.Context, informer cache.SharedIndexInformer) error {
	// 1. Read the certificates from --root-ca-file, else from the kubeconfig.
	file := c.options.RootCAFile
	if file == "" && len(c.config.CAData) == 0 {
		file = c.config.CAFile
	}
	ca := c.config.CAData
	if file != "" {
		b, err := tlsfiles.LoadBundle(file)
		if err != nil {
			return err
		}
		ca = b.PEM()
	}
	if len(ca) == 0 {
		c.log.Warn("no CA certificates to publish: set --root-ca-file", "controller", rootca.Name)
		return nil
	}

	// 2. Publish them, and the new content of the file after each change.
	controller := rootca.New(rootca.Config{ConfigMaps: c.clients.configMaps, Namespaces: informer, Log: c.log, Queues: c.queues, CA: ca})
	if file != "" {
		c.group.Go(func() {
			_ = filewatch.Follow(ctx, c.log, file, ca, func(_ context.Context, data []byte, err error) { // ends with ctx
				if err == nil {
					_, err = tlsfiles.ParseCertificates(data)
				}
				if err != nil {
					c.log.Error("CA certificates not published", "file", file, "error", err)
					return
				}
				controller.SetCA(data)
			})
		})
	}
	return controller.Run(ctx)
}

// startOthers starts the remaining controllers.
func (c *controllerRun) startOthers(ctx context.Context) {
	c.startSelected(clusterroles.Name, func() error {
		return clusterroles.New(clusterroles.Config{Roles: c.clients.roles, Log: c.log, Queues: c.queues}).Run(ctx)
	})
	c.startSelected(finishedjobs.Name, func() error {
		return finishedjobs.New(finishedjobs.Config{Jobs: c.clients.jobs, Log: c.log, Queues: c.queues}).Run(ctx)
	})
	c.startSelected(certificaterequests.Name, func() error {
		return certificaterequests.New(certificaterequests.Config{Requests: c.clients.requests, Log: c.log}).Run(ctx)
	})
}

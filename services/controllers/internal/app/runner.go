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
	current.failed = func(err error) {
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
	failed    func(error) // ends the run with an error; nil has no effect

	once sync.Once // guards the first write of err
	err  error     // the first failure; read after group.Wait
}

// startSelected runs a controller if it is selected.
func (t *controllerRun) startSelected(name string, run func() error) {
	if t.selected.isSelected(name) {
		t.started = append(t.started, name)
		t.group.Go(func() { t.failed(run()) })
	}
}

// startGraph starts the controllers that need the graph.
func (t *controllerRun) startGraph(ctx context.Context) {
	collectsGarbage := t.selected.isSelected(garbagecollector.Name)
	countsQuotas := t.selected.isSelected(quotas.Name)
	if !collectsGarbage && !countsQuotas {
		return
	}

	// 1. Create the garbage collector and the graph. Changes in the graph reach the builder and the
	// quota controller, which are created after it.
	recorder := events.New(events.Config{Client: t.clients.events, Component: garbagecollector.Component, Log: t.log})
	t.group.Go(func() { recorder.Run(ctx) })

	collector := garbagecollector.New(garbagecollector.Config{
		Client: t.clients.collector, Resources: t.resources, Log: t.log, Queues: t.queues, Workers: t.options.GCWorkers,
		Events: recorder,
	})
	var config graph.Config
	if collectsGarbage {
		config.Tasks = collector.Tasks()
	}
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
	builder = graph.NewBuilder(graph.BuilderConfig{Graph: ownerGraph, Resources: t.resources, Client: t.clients.graphMetadata, Log: t.log})

	// 2. Create the quota controller, which takes numbers of objects from the graph.
	enabled := t.options.Features.Enabled
	if countsQuotas {
		quotaController = quotas.New(quotas.Config{
			Clients: t.clients.quotas, Resources: t.resources, Counts: builder, Log: t.log, Queues: t.queues,
			Workers: t.options.QuotaWorkers, Resync: t.options.QuotaResync,
			Gates: quota.Gates{
				InPlaceResize: enabled(features.InPlacePodVerticalScaling), PodLevel: enabled(features.PodLevelResources),
				Devices: enabled(features.DynamicResourceAllocation), AttributesClasses: enabled(features.VolumeAttributesClass),
			},
		})
	}

	// 3. Start all of them.
	t.builder.Store(builder)
	t.group.Go(func() { builder.Run(ctx) })
	t.startSelected(garbagecollector.Name, func() error { collector.Run(ctx, ownerGraph, builder.InitialListDone()); return nil })
	t.startSelected(quotas.Name, func() error { return quotaController.Run(ctx, builder.InitialListDone()) })
}

// startNamespaced starts the controllers that work on each namespace.
func (t *controllerRun) startNamespaced(ctx context.Context) {
	informer := workers.NewInformer(t.clients.allNamespaces, &corev1.Namespace{}, "", t.options.NamespaceResync, cache.Indexers{})
	if err := informer.SetTransform(workers.StripMetadata); err != nil {
		t.failed(err)
		return
	}
	t.startSelected(namespaces.Name, func() error {
		return namespaces.New(namespaces.Config{
			Client: t.clients.namespaces, Pods: t.clients.namespacePods, Metadata: t.clients.namespacesMetadata,
			Resources: t.resources, Namespaces: informer,
			Log: t.log, Queues: t.queues, Workers: t.options.NamespaceWorkers,
		}).Run(ctx)
	})
	t.startSelected(serviceaccounts.Name, func() error {
		return serviceaccounts.New(serviceaccounts.Config{
			Accounts:   t.clients.accounts,
			Namespaces: informer,
			Log:        t.log,
			Queues:     t.queues,
		}).Run(ctx)
	})
	t.startSelected(rootca.Name, func() error { return t.runRootCA(ctx, informer) })
	t.group.Go(func() { informer.RunWithContext(ctx) })
}

// runRootCA publishes the CA certificates, also after they change.
func (t *controllerRun) runRootCA(ctx context.Context, informer cache.SharedIndexInformer) error {
	// 1. Read the certificates from --root-ca-file, else from the kubeconfig.
	file := t.options.RootCAFile
	if file == "" && len(t.config.CAData) == 0 {
		file = t.config.CAFile
	}
	ca := t.config.CAData
	if file != "" {
		b, err := tlsfiles.LoadBundle(file)
		if err != nil {
			return err
		}
		ca = b.PEM()
	}
	if len(ca) == 0 {
		t.log.Warn("no CA certificates to publish: set --root-ca-file", "controller", rootca.Name)
		return nil
	}

	// 2. Publish them, and the new content of the file after each change.
	controller := rootca.New(rootca.Config{ConfigMaps: t.clients.configMaps, Namespaces: informer, Log: t.log, Queues: t.queues, CA: ca})
	if file != "" {
		t.group.Go(func() {
			_ = filewatch.Follow(ctx, t.log, file, ca, func(_ context.Context, data []byte, err error) { // ends with ctx
				if err == nil {
					_, err = tlsfiles.ParseCertificates(data)
				}
				if err != nil {
					t.log.Error("CA certificates not published", "file", file, "error", err)
					return
				}
				controller.SetCA(data)
			})
		})
	}
	return controller.Run(ctx)
}

// startOthers starts the remaining controllers.
func (t *controllerRun) startOthers(ctx context.Context) {
	t.startSelected(clusterroles.Name, func() error {
		return clusterroles.New(clusterroles.Config{Roles: t.clients.roles, Log: t.log, Queues: t.queues}).Run(ctx)
	})
	t.startSelected(finishedjobs.Name, func() error {
		return finishedjobs.New(finishedjobs.Config{Jobs: t.clients.jobs, Log: t.log, Queues: t.queues}).Run(ctx)
	})
	t.startSelected(certificaterequests.Name, func() error {
		return certificaterequests.New(certificaterequests.Config{Requests: t.clients.requests, Log: t.log}).Run(ctx)
	})
}

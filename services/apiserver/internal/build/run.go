package build

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/registry"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/server"
)

// Run runs the server until ctx ends, then shuts it down gracefully.
func Run(ctx context.Context, o *config.Options, log *slog.Logger) error {
	countContention(o)
	p, err := build(ctx, o, log)
	if err != nil {
		return err
	}
	defer p.life.close()
	return p.run(ctx)
}

// run runs the parts until ctx ends.
func (p *parts) run(ctx context.Context) error {
	background := append(p.life.background, task.Task{Name: "custom resources", Run: p.definitionInformer.Run})
	background = append(background, p.policyTasks()...)
	background = append(background, p.tokenTasks()...)
	if p.flow != nil {
		background = append(background, task.Task{Name: "flow control", Run: p.flow.Run})
	}
	// The server task maintains the bootstrap objects while it accepts requests, and removes this
	// replica from the kubernetes service while the caches still run.
	return task.Around(ctx, task.Task{Name: "server", Run: p.serve}, background...)
}

func (p *parts) serve(ctx context.Context) error {
	return task.Run(ctx, append(slices.Concat(p.flowTasks(), p.storageVersionTasks(), p.leaderElectionTasks(), p.extensionTasks(), p.extensionInfo(), p.addressRepairs(), p.peerTasks(), p.debugSocket(), p.typeChecks.tasks(p.options.Admission.TypeChecks)),
		task.Task{Name: "https", Run: func(ctx context.Context) error {
			done := make(chan struct{})
			defer close(done)
			go func() { // requests must not wait for a slow audit log during shutdown
				select {
				case <-p.server.LongRunningStop():
				case <-done:
				}
				p.audit.shuttingDown()
			}()
			return p.server.Run(ctx, p.handler, server.LongRunning(p.kinds, p.foreign()))
		}},
		task.Task{Name: "initial objects", Run: p.bootstrap.Run},
		p.roleAggregator(), p.registrationTask(),
		task.Task{Name: "definitions", Run: p.definitionController.Run},
	)...)
}

// namespaces looks up namespaces for admission. It confirms that the cache is current before it
// reports that a namespace does not exist.
type namespaces struct{ p *parts }

func (n *namespaces) Phase(ctx context.Context, name string) (exists, terminating bool, err error) {
	e, err := n.find(ctx, name)
	if e == nil || err != nil {
		return false, false, err
	}
	return true, e.Fields().Get("status.phase") == string(corev1.NamespaceTerminating), nil
}

// Labels implements matcher.Namespaces.
func (n *namespaces) Labels(ctx context.Context, name string) (map[string]string, error) {
	e, err := n.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return maps.Collect(e.Labels().All()), nil
}

// find returns nil if the namespace does not exist. An unreadable namespace is an error: missing
// labels could admit objects that the labels forbid.
func (n *namespaces) find(ctx context.Context, name string) (*watchcache.Entry, error) {
	kind := n.p.lookup(corev1.SchemeGroupVersion.WithResource("namespaces"))
	if err := kind.Seen(ctx); err != nil {
		return nil, err
	}
	e, ok := kind.Store.Get(kind.Prefix + name)
	if !ok {
		if _, err := n.p.cache.MostRecent(ctx); err != nil {
			return nil, err
		}
		if e, ok = kind.Store.Get(kind.Prefix + name); !ok {
			return nil, nil
		}
	}
	if err := e.Unreadable(); err != nil {
		return nil, fmt.Errorf("namespace %s cannot be read: %w", name, err)
	}
	return e, nil
}

// apiServices returns the APIServices of the built-in group versions.
func apiServices(served *registry.Catalog) (out []bootstrap.APIService) {
	for _, g := range served.Groups() {
		if g.Name == apiregistrationv1.GroupName {
			continue
		}
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v}
			out = append(out, bootstrap.APIService{
				Group: g.Name, Version: v, GroupPriority: g.Priority, VersionPriority: builtin.VersionPriority(gv),
			})
		}
	}
	return out
}

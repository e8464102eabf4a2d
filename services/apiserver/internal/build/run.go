package build

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/memory"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/registry"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// Run runs the server until ctx ends, then shuts it down gracefully.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	o.countContention()
	p, err := build(ctx, o, log)
	if err != nil {
		return err
	}
	defer p.release()
	return p.run(ctx)
}

// run runs the parts until ctx ends.
func (p *parts) run(ctx context.Context) error {
	background := []task.Task{
		{Name: "fan-out", Run: p.fanout.Run},
		{Name: "watch cache", Run: p.cache.Run},
		{Name: "compactor", Run: p.compact},
		{Name: "custom resources", Run: p.follower.Run},
		{Name: "memory release", Run: memory.ReleaseWhenIdle},
	}
	background = append(background, p.otherTasks()...)
	background = append(background, p.policyTasks()...)
	background = append(background, p.auditTasks()...)
	background = append(background, p.followTokens()...)
	background = append(background, p.encryptionTasks()...)
	if p.flow != nil {
		background = append(background, task.Task{Name: "flow control", Run: p.flow.Run})
	}
	if p.monitor != nil {
		background = append(background, task.Task{Name: "etcd monitor", Run: p.monitor})
	}
	if p.etcd != nil {
		background = append(background, task.Task{Name: "embedded etcd", Run: p.watchEtcd}, task.Task{Name: "embedded etcd's maintenance", Run: p.etcd.Maintain})
	}
	// The initial objects are kept as long as requests are accepted, and this
	// replica leaves the kubernetes service while the caches still work.
	return task.Around(ctx, task.Task{Name: "server", Run: p.serve}, background...)
}

func (p *parts) serve(ctx context.Context) error {
	return task.Run(ctx, append(slices.Concat(p.flowTasks(), p.storageVersionTasks(), p.leaderTasks(), p.remoteTasks(), p.extensionInfo(), p.addressRepairs(), p.peerTasks(), p.debugSocket(), p.typeChecks.tasks(p.options.Admission.TypeChecks)),
		task.Task{Name: "https", Run: func(ctx context.Context) error {
			over := make(chan struct{})
			defer close(over)
			go func() { // requests that end are not to wait for a log that nobody reads
				select {
				case <-p.server.LongRunningStop():
				case <-over:
				}
				p.audit.ends()
			}()
			return p.server.Run(ctx, p.handler)
		}},
		task.Task{Name: "initial objects", Run: p.bootstrap.Run},
		p.aggregator(), p.registrations(),
		task.Task{Name: "definitions", Run: p.keeper.Run},
	)...)
}

// watchEtcd ends the process when the etcd in it does.
func (p *parts) watchEtcd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.etcd.Err():
		return fmt.Errorf("embedded etcd: %w", errors.Join(errors.New("stopped"), err))
	}
}

// namespaces looks namespaces up for admission: in the cache, and once more
// after confirming the newest state before one is said not to exist.
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

// find is nil when there is no such namespace. What one says that cannot be read nobody
// knows, which is an error: labels that are missing would let objects in.
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

// apiServices are the built-in group versions as the aggregator's kind shows
// them.
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

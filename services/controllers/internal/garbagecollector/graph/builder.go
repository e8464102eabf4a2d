package graph

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"binnacle/services/controllers/internal/resources"
)

const (
	// discoveryPeriod is the interval of discovery without changes of definitions.
	discoveryPeriod = 30 * time.Second
	// discoveryDelay is how long discovery is delayed after a definition has changed, so that
	// several changes cause one discovery and the server has had time to serve them.
	discoveryDelay = time.Second
	// initialTimeout is how long controllers wait for the initial lists. A resource that cannot be
	// listed must not stop the others.
	initialTimeout = 30 * time.Second
)

// BuilderConfig configures a Builder.
type BuilderConfig struct {
	Graph     *Graph
	Resources *resources.Cache
	Client    metadata.Interface
	Log       *slog.Logger
}

// Builder keeps a graph up to date: it runs a monitor for each resource. It is safe for concurrent
// use.
type Builder struct {
	BuilderConfig
	definitionsChanged chan struct{} // has a capacity of one

	mu       sync.Mutex // taken before the lock of the graph
	monitors map[*resources.Resource]*monitor
	group    sync.WaitGroup
	listed   chan struct{} // closed when the initial lists are complete or have timed out
}

// NewBuilder returns an idle builder.
func NewBuilder(c BuilderConfig) *Builder {
	return &Builder{
		BuilderConfig:      c,
		definitionsChanged: make(chan struct{}, 1),
		monitors:           map[*resources.Resource]*monitor{},
		listed:             make(chan struct{}),
	}
}

// DefinitionsChanged reports that the server may serve other resources soon. It does not block.
func (b *Builder) DefinitionsChanged() {
	select {
	case b.definitionsChanged <- struct{}{}:
	default:
	}
}

// Definitions reports whether objects of a resource define resources.
func Definitions(r schema.GroupResource) bool {
	return r == schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"} ||
		r == schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
}

// Check is a health check. It fails until the initial lists are complete or have timed out.
func (b *Builder) Check(*http.Request) error {
	select {
	case <-b.listed:
		return nil
	default:
	}
	waiting, all := b.unlistedResources()
	if all == 0 || len(waiting) == 0 {
		return errors.New("waiting for the resources of the API server to be discovered")
	}
	return fmt.Errorf("waiting for %d of %d resources to be listed, among them %s", len(waiting), all, waiting[0])
}

// InitialListDone returns a channel that is closed when the initial lists are complete or have
// timed out.
func (b *Builder) InitialListDone() <-chan struct{} { return b.listed }

// Count returns the number of objects of a resource in a namespace, and false if the resource is
// not followed. It fails if the resource is not listed yet.
func (b *Builder) Count(resource schema.GroupResource, namespace string) (n int, followed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, monitor := range b.monitors {
		if monitor.resource.GroupResource() != resource {
			continue
		}
		if !monitor.Synced() {
			return 0, true, fmt.Errorf("%s are not listed yet", resource)
		}
		return b.Graph.Count(resource, namespace), true, nil
	}
	return 0, false, nil
}

// unlistedResources returns the resources that are not listed yet, and the number of all resources.
func (b *Builder) unlistedResources() (out []string, all int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, m := range b.monitors {
		if !m.Synced() {
			out = append(out, r.GroupResource().String())
		}
	}
	return out, len(b.monitors)
}

// Run follows all resources until ctx ends, and returns when its goroutines have ended.
func (b *Builder) Run(ctx context.Context) {
	defer b.group.Wait()
	b.group.Go(func() { b.waitForLists(ctx) })
	for ctx.Err() == nil {
		wait := discoveryPeriod
		if table, err := b.Resources.Get(ctx, 0); err != nil {
			b.Log.Warn("failed to discover resources; retrying", "error", err)
			wait = discoveryDelay
		} else {
			if table.Failure != nil {
				b.Log.Warn("discovery of some resources failed", "error", table.Failure)
			}
			b.updateMonitors(ctx, table)
		}
		select { // until the next discovery
		case <-ctx.Done():
		case <-time.After(wait):
		case <-b.definitionsChanged:
			select {
			case <-ctx.Done():
			case <-time.After(discoveryDelay):
			}
		}
	}
}

// waitForLists closes listed when all resources are listed, or after initialTimeout. If ctx ends
// first, listed stays open.
func (b *Builder) waitForLists(ctx context.Context) {
	const poll = 100 * time.Millisecond
	for start := time.Now(); time.Since(start) < initialTimeout; {
		waiting, all := b.unlistedResources()
		if all > 0 && len(waiting) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
	}
	if waiting, _ := b.unlistedResources(); len(waiting) > 0 {
		b.Log.Warn("proceeding without resources that are not listed yet", "resources", waiting)
	}
	b.Log.Debug("objects listed", "objects", b.Graph.Len())
	close(b.listed)
}

// updateMonitors starts the monitors of new resources, and stops those of resources that are not
// served any more. Nodes of such resources stay: their deletion was not observed.
func (b *Builder) updateMonitors(ctx context.Context, t *resources.Table) {
	desired := map[*resources.Resource]bool{}
	for _, list := range [][]*resources.Resource{t.Preferred, t.Stale} {
		for _, resource := range list {
			if resource.Can("delete", "list", "watch") && !isEvent(resource) {
				desired[resource] = true
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for resource, monitor := range b.monitors {
		if !desired[resource] {
			b.Log.Info("resource is not served any more", "resource", resource.GroupVersionResource.String())
			monitor.cancel()
			delete(b.monitors, resource)
		}
	}
	for resource := range desired {
		if b.monitors[resource] != nil {
			continue
		}
		mctx, cancel := context.WithCancel(ctx)
		monitor := newMonitor(b.Graph, b.Client.Resource(resource.GroupVersionResource), resource, b.Log, cancel)
		b.monitors[resource] = monitor
		b.group.Go(func() { _ = monitor.Run(mctx) })
	}
}

// isEvent reports whether a resource holds events. They are not in the graph, because they have no
// owners and are many.
func isEvent(r *resources.Resource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

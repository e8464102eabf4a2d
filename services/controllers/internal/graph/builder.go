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
	// period is the interval of discovery without changes of definitions.
	period = 30 * time.Second
	// settle is how long discovery is delayed after a definition has changed, so that several
	// changes cause one discovery and the server has had time to serve them.
	settle = time.Second
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

// Builder keeps a graph up to date.
type Builder struct {
	BuilderConfig
	changed chan struct{} // has a capacity of one

	mu       sync.Mutex // taken before the lock of the graph
	monitors map[*resources.Resource]*monitor
	group    sync.WaitGroup
	listed   chan struct{} // closed when the initial lists are complete or have timed out
}

// NewBuilder returns an idle builder.
func NewBuilder(c BuilderConfig) *Builder {
	return &Builder{BuilderConfig: c, changed: make(chan struct{}, 1), monitors: map[*resources.Resource]*monitor{}, listed: make(chan struct{})}
}

// DefinitionsChanged reports that the server may serve other resources soon. It does not block.
func (f *Builder) DefinitionsChanged() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Definitions reports whether objects of a resource define resources.
func Definitions(r schema.GroupResource) bool {
	return r == schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"} ||
		r == schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
}

// Check is a health check. It fails until the initial lists are complete or have timed out.
func (f *Builder) Check(*http.Request) error {
	select {
	case <-f.listed:
		return nil
	default:
	}
	waiting, all := f.waiting()
	if all == 0 || len(waiting) == 0 {
		return errors.New("waiting for the resources of the API server to be discovered")
	}
	return fmt.Errorf("waiting for %d of %d resources to be listed, among them %s", len(waiting), all, waiting[0])
}

// Listed returns a channel that is closed when the initial lists are complete or have timed out.
func (f *Builder) Listed() <-chan struct{} { return f.listed }

// Count returns the number of objects of a resource in a namespace, and false if the resource is
// not followed. It fails if the resource is not listed yet.
func (f *Builder) Count(r schema.GroupResource, namespace string) (n int, followed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.monitors {
		if m.resource.GroupResource() != r {
			continue
		}
		if !m.Synced() {
			return 0, true, fmt.Errorf("%s are not listed yet", r)
		}
		return f.Graph.Count(r, namespace), true, nil
	}
	return 0, false, nil
}

// waiting returns the resources that are not listed yet, and the number of all resources.
func (f *Builder) waiting() (out []string, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r, m := range f.monitors {
		if !m.Synced() {
			out = append(out, r.GroupResource().String())
		}
	}
	return out, len(f.monitors)
}

// Run follows all resources until ctx ends, and returns when its goroutines have ended.
func (f *Builder) Run(ctx context.Context) {
	defer f.group.Wait()
	f.group.Go(func() { f.awaitLists(ctx) })
	for ctx.Err() == nil {
		wait := period
		if table, err := f.Resources.Get(ctx, 0); err != nil {
			f.Log.Warn("discovery of resources failed, retrying", "error", err)
			wait = settle
		} else {
			if table.Failure != nil {
				f.Log.Warn("discovery of some resources failed", "error", table.Failure)
			}
			f.sync(ctx, table)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-f.changed:
			select {
			case <-ctx.Done():
			case <-time.After(settle):
			}
		}
	}
}

// awaitLists closes listed.
func (f *Builder) awaitLists(ctx context.Context) {
	const poll = 100 * time.Millisecond
	for begun := time.Now(); time.Since(begun) < initialTimeout; {
		waiting, all := f.waiting()
		if all > 0 && len(waiting) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
	}
	if waiting, _ := f.waiting(); len(waiting) > 0 {
		f.Log.Warn("proceeding without resources that are not listed yet", "resources", waiting)
	}
	f.Log.Debug("following objects", "objects", f.Graph.Len())
	close(f.listed)
}

// sync starts the monitors of new resources, and stops those of resources that are not served any
// more. Nodes of such resources stay: their deletion was not observed.
func (f *Builder) sync(ctx context.Context, t *resources.Table) {
	wanted := map[*resources.Resource]bool{}
	for _, list := range [][]*resources.Resource{t.Preferred, t.Stale} {
		for _, r := range list {
			if r.Can("delete", "list", "watch") && !ignored(r) {
				wanted[r] = true
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for r, m := range f.monitors {
		if !wanted[r] {
			f.Log.Info("resource is not served any more", "resource", r.GroupVersionResource.String())
			m.cancel()
			delete(f.monitors, r)
		}
	}
	for r := range wanted {
		if f.monitors[r] != nil {
			continue
		}
		mctx, cancel := context.WithCancel(ctx)
		m := newMonitor(f.Graph, f.Client.Resource(r.GroupVersionResource), r, f.Log, cancel)
		f.monitors[r] = m
		f.group.Go(func() { _ = m.Run(mctx) })
	}
}

// ignored reports whether objects of a resource are not in the graph. Events have no owners, and
// there are many.
func ignored(r *resources.Resource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

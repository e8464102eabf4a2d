package authz

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Source is a resource that the policy consists of.
type Source struct {
	Store *watchcache.Store
	// Decode returns the object of an entry.
	Decode func(*watchcache.Entry) (metav1.Object, error)
}

// PolicyConfig configures a Policy.
type PolicyConfig struct {
	Cache *watchcache.Cache
	// Rules holds the four resources of roles and bindings, by kind.
	Rules map[string]Source
	// Nodes holds pods, persistent volumes, volume attachments and resource slices. It is empty
	// without a node authorizer.
	Nodes  map[node.Kind]Source
	Logger *slog.Logger
}

// Policy is the policy in process: the RBAC engine and the graph of the node authorizer.
type Policy struct {
	Engine *rbac.Engine
	Graph  *node.Graph

	cfg   PolicyConfig
	feeds []*feed

	// updates orders updates of the engine together with the calls of listeners, so that listeners
	// receive changes in order. A position before the last one shows that the store's revision went
	// backwards.
	updates sync.Mutex

	mu        sync.Mutex // a leaf lock; listeners are called without it
	moved     chan struct{}
	listeners []func(rbac.Change)
}

// NewPolicy returns a policy, which is empty before Run.
func NewPolicy(c PolicyConfig) *Policy {
	p := &Policy{Engine: rbac.New(), Graph: node.NewGraph(), cfg: c, moved: make(chan struct{})}
	for kind, s := range c.Rules {
		p.add(&feed{name: kind, policy: p, source: s, into: &ruleSink{policy: p, kind: kind}})
	}
	for kind, s := range c.Nodes {
		p.add(&feed{name: s.Store.Name(), policy: p, source: s, into: &nodeSink{policy: p, kind: kind}})
	}
	return p
}

func (p *Policy) add(f *feed) {
	f.era.Store(-1)
	p.feeds = append(p.feeds, f)
}

// OnChange registers f. It is called after each update of roles or bindings, once the engine uses
// it, including updates that affect no decision.
func (p *Policy) OnChange(f func(rbac.Change)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, f)
}

// update applies a change to the engine and calls the listeners.
func (p *Policy) update(set func(*rbac.Tx)) {
	p.updates.Lock()
	defer p.updates.Unlock()
	change := p.Engine.Update(set)
	p.mu.Lock()
	listeners := p.listeners
	p.mu.Unlock()
	for _, f := range listeners {
		f(change)
	}
}

// Run follows the resources until ctx ends or the cache stops.
func (p *Policy) Run(ctx context.Context) error {
	if err := p.cfg.Cache.WaitReady(ctx); err != nil {
		return p.waited(err)
	}
	tasks := make([]task.Task, len(p.feeds))
	for i, f := range p.feeds {
		tasks[i] = task.Task{Name: "policy: " + f.name, Run: f.run}
	}
	return task.Run(ctx, tasks...)
}

// waited returns the error for a failed wait for the cache.
func (p *Policy) waited(err error) error {
	if errors.Is(err, watchcache.ErrStopped) {
		return nil // the cache itself reports the reason
	}
	return err
}

// noteMove wakes the callers that wait for a position.
func (p *Policy) noteMove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.moved)
	p.moved = make(chan struct{})
}

var errNotSynced = errors.New("roles and bindings are not loaded")

// Synced reports whether every resource is loaded, and loaded again if etcd was restored.
func (p *Policy) Synced() bool {
	if len(p.feeds) == 0 {
		return true
	}
	era := int64(p.cfg.Cache.Era())
	for _, f := range p.feeds {
		if f.era.Load() != era {
			return false
		}
	}
	return true
}

// Check is the health check for Synced.
func (p *Policy) Check(*http.Request) error {
	if !p.Synced() {
		return errNotSynced
	}
	return nil
}

// WaitFor blocks until the policy includes all changes up to a revision.
func (p *Policy) WaitFor(ctx context.Context, revision int64) error {
	if err := p.cfg.Cache.WaitFor(ctx, revision); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		moved := p.moved
		p.mu.Unlock()
		behind := false
		for _, f := range p.feeds {
			if f.at.Load() < revision || f.era.Load() != int64(p.cfg.Cache.Era()) {
				behind = true
				f.nudge()
			}
		}
		if !behind {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// MostRecent blocks until the policy includes all changes that were acknowledged before the call.
func (p *Policy) MostRecent(ctx context.Context) error {
	revision, err := p.cfg.Cache.MostRecent(ctx)
	if err != nil {
		return err
	}
	return p.WaitFor(ctx, revision)
}

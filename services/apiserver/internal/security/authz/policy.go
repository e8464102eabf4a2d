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
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Source is a resource that the policy consists of.
type Source struct {
	Store *watchcache.Store
	// Decode returns the object of an entry.
	Decode func(*objects.Entry) (metav1.Object, error)
}

// PolicyConfig configures a LocalPolicy.
type PolicyConfig struct {
	Cache *watchcache.Cache
	// Rules holds the four resources of roles and bindings, by kind.
	Rules map[string]Source
	// Nodes holds pods, persistent volumes, volume attachments and resource slices. It is empty
	// without a node authorizer.
	Nodes  map[node.Kind]Source
	Logger *slog.Logger
}

// LocalPolicy is the policy in process: the RBAC engine and the graph of the node authorizer.
type LocalPolicy struct {
	Engine *rbac.Engine
	Graph  *node.Graph

	config        PolicyConfig
	subscriptions []*subscription

	// updates orders updates of the engine together with the calls of listeners, so that listeners
	// receive changes in order. A position before the last one shows that the store's revision went
	// backwards.
	updates sync.Mutex

	mu        sync.Mutex // leaf lock; listeners are called without it
	listeners []func(rbac.Change)
}

// NewPolicy returns a policy, which is empty before Run.
func NewPolicy(c PolicyConfig) *LocalPolicy {
	p := &LocalPolicy{Engine: rbac.New(), Graph: node.NewGraph(), config: c}
	for kind, s := range c.Rules {
		p.subscriptions = append(p.subscriptions, p.newSubscription(kind, s, &ruleSink{policy: p, kind: kind}))
	}
	for kind, s := range c.Nodes {
		p.subscriptions = append(p.subscriptions, p.newSubscription(s.Store.Name(), s, &nodeSink{policy: p, kind: kind}))
	}
	return p
}

// OnChange registers f. It is called after each update of roles or bindings, once the engine uses
// it, including updates that affect no decision.
func (p *LocalPolicy) OnChange(f func(rbac.Change)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, f)
}

// updateEngine applies a change to the engine and calls the listeners.
func (p *LocalPolicy) updateEngine(change func(*rbac.Tx)) {
	p.updates.Lock()
	defer p.updates.Unlock()
	applied := p.Engine.Update(change)
	p.mu.Lock()
	listeners := p.listeners
	p.mu.Unlock()
	for _, f := range listeners {
		f(applied)
	}
}

// Run follows the resources until ctx ends or the cache stops.
func (p *LocalPolicy) Run(ctx context.Context) error {
	tasks := make([]task.Task, len(p.subscriptions))
	for i, f := range p.subscriptions {
		tasks[i] = task.Task{Name: "policy: " + f.name, Run: f.Run}
	}
	return task.Run(ctx, tasks...)
}

var errNotSynced = errors.New("roles and bindings are not loaded")

// Synced reports whether every resource is loaded. It is false again after etcd was restored, until
// every resource is reloaded.
func (p *LocalPolicy) Synced() bool {
	for _, f := range p.subscriptions {
		if !f.Synced() {
			return false
		}
	}
	return true
}

// Check is the health check for Synced.
func (p *LocalPolicy) Check(*http.Request) error {
	if !p.Synced() {
		return errNotSynced
	}
	return nil
}

// WaitFor blocks until the policy includes all changes up to a revision.
func (p *LocalPolicy) WaitFor(ctx context.Context, revision int64) error {
	if err := p.config.Cache.WaitFor(ctx, revision); err != nil {
		return err
	}
	for _, f := range p.subscriptions {
		if err := f.WaitFor(ctx, revision); err != nil {
			return err
		}
	}
	return nil
}

// MostRecent blocks until the policy includes all changes that were acknowledged before the call.
func (p *LocalPolicy) MostRecent(ctx context.Context) error {
	revision, err := p.config.Cache.MostRecent(ctx)
	if err != nil {
		return err
	}
	return p.WaitFor(ctx, revision)
}

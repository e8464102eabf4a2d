package tokenreviews

import (
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/satoken"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// CachedKind is the part of the watch cache that holds a kind of object.
type CachedKind struct {
	Kind  satoken.Kind
	Store *watchcache.Store
}

// Run follows the objects that results depend on until ctx ends.
func (c *Cache) Run(ctx context.Context, followed []CachedKind) error {
	state := &followedKinds{cache: c, missing: len(followed)}
	var tasks []task.Task
	for _, cachedKind := range followed {
		tasks = append(tasks, task.Task{
			Name: "tokens by " + string(cachedKind.Kind),
			Run: informer.New(informer.Config{
				Store:       cachedKind.Store,
				ChangesOnly: true,
				Replace:     func(context.Context, []*objects.Entry, int64) { state.markFollowed() },
				Apply: func(ctx context.Context, changes []watchcache.Event, _ int64) {
					for _, ev := range changes {
						c.handleEvent(ctx, cachedKind.Kind, ev)
					}
				},
				OnLost: func(err error) {
					if errors.As(err, new(*watchcache.ExpiredError)) {
						c.config.Logger.Info("cached token reviews are dropped: events were missed", "kind", cachedKind.Kind)
					}
					state.markLost()
				},
			}).Run,
		})
	}
	return task.Run(ctx, tasks...)
}

// followedKinds counts the kinds whose events are currently not received.
type followedKinds struct {
	cache   *Cache
	mu      sync.Mutex // before Cache.mu
	missing int
}

// markLost records that events of a kind are no longer received. It disables caching until found is
// called.
func (s *followedKinds) markLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing++
	s.cache.following.Store(false)
	s.cache.Forget()
}

// markFollowed records that events are received from now on. Earlier cached results may have missed
// some, so they are dropped.
func (s *followedKinds) markFollowed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing--
	s.cache.Forget()
	if s.missing == 0 {
		s.cache.following.Store(true)
	}
}

// handleEvent drops the results that an event may affect.
func (c *Cache) handleEvent(ctx context.Context, kind satoken.Kind, ev watchcache.Event) {
	o := object{Kind: kind, Namespace: ev.Entry.Namespace(), Name: ev.Entry.Name()}
	// Pods and nodes change often in irrelevant ways. The content of a secret is relevant, and so
	// are the secrets that a service account lists.
	if ev.Type == watchcache.Modified && (kind == satoken.KindPod || kind == satoken.KindNode) {
		if len(c.index.dependentKeys(o)) == 0 || c.allExist(ctx, []object{o}) {
			return
		}
	}
	c.invalidate(o)
}

// allExist reports whether all objects exist with the same uids and are not being deleted.
func (c *Cache) allExist(ctx context.Context, named []object) bool {
	for _, o := range named {
		found, err := c.findObject(ctx, o)
		if err != nil || found.GetDeletionTimestamp() != nil || o.UID != "" && string(found.GetUID()) != o.UID {
			return false
		}
	}
	return true
}

// findObject looks up an object in this server.
func (c *Cache) findObject(ctx context.Context, o object) (metav1.Object, error) {
	switch o.Kind {
	case satoken.KindServiceAccount:
		return c.config.Objects.ServiceAccount(ctx, o.Namespace, o.Name)
	case satoken.KindPod:
		return c.config.Objects.Pod(ctx, o.Namespace, o.Name)
	case satoken.KindNode:
		return c.config.Objects.Node(ctx, o.Name)
	default:
		return c.config.Objects.Secret(ctx, o.Namespace, o.Name)
	}
}

// Package lister reads objects from the watch cache for components inside the API server:
// authenticators (the objects that tokens depend on) and admission plugins (the objects that a
// write depends on). A read returns at least the state of all writes that this server has
// acknowledged (WriteBarrier).
//
// The package keeps no state except that of Compiled, Memoized and CachedLister, which cache
// values.
package lister

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// Cache is the part of the watch cache that reads need.
type Cache interface {
	Ready() bool
	MostRecent(ctx context.Context) (int64, error)
}

// CachedResource describes where the objects of a kind are stored.
type CachedResource struct {
	Resource schema.GroupResource
	Prefix   string // of its keys
	Store    *watchcache.Store
	Coder    *codec.KindCodec
	// Barrier, if set, records the writes of this server to the kind. Reads wait for them.
	Barrier *WriteBarrier
}

// WriteBarrier holds the newest revision that this server wrote, of one kind or
// of all. The zero value means that it wrote none.
type WriteBarrier struct{ newest atomic.Pointer[revisionMark] }

// revisionMark is a revision in one history of the store (see watchcache.Cache.Incarnation).
type revisionMark struct {
	incarnation uint64
	revision    int64
}

// Record records a revision of an incarnation. It is called before the write is acknowledged.
func (w *WriteBarrier) Record(incarnation uint64, revision int64) {
	for {
		before := w.newest.Load()
		if before != nil && (before.incarnation > incarnation || before.incarnation == incarnation && before.revision >= revision) {
			return
		}
		if w.newest.CompareAndSwap(before, &revisionMark{incarnation: incarnation, revision: revision}) {
			return
		}
	}
}

// RevisionWaiter is a cache, or a part of one, that can be waited for.
type RevisionWaiter interface {
	Incarnation() uint64
	WaitFor(ctx context.Context, revision int64) error
}

// Wait blocks until the cache has the recorded writes. Writes of an earlier incarnation need no
// wait: the cache was loaded again when the revision of the store went backwards.
func (w *WriteBarrier) Wait(ctx context.Context, c RevisionWaiter) error {
	if m := w.newest.Load(); m != nil && m.incarnation == c.Incarnation() {
		return c.WaitFor(ctx, m.revision)
	}
	return nil
}

// WaitForWrites blocks until the cache has this server's writes of the kind.
func (k *CachedResource) WaitForWrites(ctx context.Context) error {
	if k.Barrier == nil {
		return nil
	}
	if err := k.Barrier.Wait(ctx, k.Store); err != nil {
		return fmt.Errorf("wait until the cache contains the written %s: %w", k.Resource, err)
	}
	return nil
}

// Objects reads objects from the cache. It implements satoken.Objects and bootstraptoken.Secrets.
type Objects struct {
	Cache                                 Cache
	ServiceAccounts, Pods, Secrets, Nodes CachedResource
	// Confirm waits for the current state of the store before an object is reported missing, so
	// that recent writes of other replicas count.
	Confirm bool
}

// ServiceAccount implements satoken.Objects.
func (o *Objects) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return Get[*corev1.ServiceAccount](ctx, o, &o.ServiceAccounts, namespace, name)
}

// Pod implements satoken.Objects.
func (o *Objects) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return Get[*corev1.Pod](ctx, o, &o.Pods, namespace, name)
}

// Secret implements satoken.Objects.
func (o *Objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return Get[*corev1.Secret](ctx, o, &o.Secrets, namespace, name)
}

// Node implements satoken.Objects.
func (o *Objects) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return Get[*corev1.Node](ctx, o, &o.Nodes, "", name)
}

// Get returns an object of a kind, or a NotFound error.
func Get[T registry.Object](ctx context.Context, objects *Objects, cachedResource *CachedResource, namespace, name string) (found T, err error) {
	key := cachedResource.Prefix + name
	if namespace != "" {
		key = cachedResource.Prefix + namespace + "/" + name
	}
	if !objects.Cache.Ready() {
		return found, watchcache.ErrNotReady
	}
	if err := cachedResource.WaitForWrites(ctx); err != nil {
		return found, err
	}
	e, ok := cachedResource.Store.Get(key)
	if !ok && objects.Confirm {
		if _, err := objects.Cache.MostRecent(ctx); err != nil {
			return found, fmt.Errorf("confirm that %s %q does not exist: %w", cachedResource.Resource, name, err)
		}
		e, ok = cachedResource.Store.Get(key)
	}
	if !ok {
		return found, apierrors.NewNotFound(cachedResource.Resource, name)
	}
	_ = request.Estimate(ctx, e.Size()) // continue after a failure, because the caller needs the object
	obj, err := cachedResource.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return found, err
	}
	found, ok = obj.(T)
	if !ok {
		return found, fmt.Errorf("%s %q is a %T", cachedResource.Resource, name, obj)
	}
	return found, nil
}

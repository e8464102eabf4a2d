// Package objects looks up objects in the watch cache for what works inside the
// API server: authenticators (what bearer tokens depend on) and admission plugins
// (what a write hangs on). It keeps nothing but what Derived and Kept remember, and
// for Follower which versions it told of.
package objects

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/watchcache"
)

// Cache is the part of the watch cache that look-ups need.
type Cache interface {
	Ready() bool
	MostRecent(ctx context.Context) (int64, error)
}

// Kind is where one kind of object is found.
type Kind struct {
	Resource schema.GroupResource
	Prefix   string // of its keys
	Store    *watchcache.Store
	Coder    *codec.Coder
	// Written, if set, is up to where this server wrote the kind: what it has
	// acknowledged is always found.
	Written *Written
}

// Written is the newest revision that this server wrote of a kind, or at all. The
// zero value is that of a kind that it did not write.
type Written struct{ newest atomic.Pointer[mark] }

// mark is a revision of one history of the store (see watchcache.Cache.Era).
type mark struct {
	era      uint64
	revision int64
}

// Note remembers a revision of an era, before the write is acknowledged.
func (w *Written) Note(era uint64, revision int64) {
	for {
		before := w.newest.Load()
		if before != nil && (before.era > era || before.era == era && before.revision >= revision) {
			return
		}
		if w.newest.CompareAndSwap(before, &mark{era, revision}) {
			return
		}
	}
}

// Followed is a cache, or a part of it, that can be waited for.
type Followed interface {
	Era() uint64
	WaitFor(ctx context.Context, revision int64) error
}

// Seen waits until a cache has what was written. What was written before the store
// went back is loaded with everything else.
func (w *Written) Seen(ctx context.Context, c Followed) error {
	if m := w.newest.Load(); m != nil && m.era == c.Era() {
		return c.WaitFor(ctx, m.revision)
	}
	return nil
}

// Seen waits until the cache has what this server wrote of the kind.
func (k *Kind) Seen(ctx context.Context) error {
	if k.Written == nil {
		return nil
	}
	if err := k.Written.Seen(ctx, k.Store); err != nil {
		return fmt.Errorf("wait for what was written of %s: %w", k.Resource, err)
	}
	return nil
}

// Objects looks up objects. It satisfies satoken.Objects and
// bootstraptoken.Secrets.
type Objects struct {
	Cache                                 Cache
	ServiceAccounts, Pods, Secrets, Nodes Kind
	// Confirm asks the store for the newest state before it is said that
	// something does not exist: what another replica has just written counts.
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

// Get looks up an object of a kind. What does not exist is a NotFound error.
func Get[T registry.Object](ctx context.Context, o *Objects, k *Kind, namespace, name string) (found T, err error) {
	key := k.Prefix + name
	if namespace != "" {
		key = k.Prefix + namespace + "/" + name
	}
	if !o.Cache.Ready() {
		return found, watchcache.ErrNotReady
	}
	if err := k.Seen(ctx); err != nil {
		return found, err
	}
	e, ok := k.Store.Get(key)
	if !ok && o.Confirm {
		if _, err := o.Cache.MostRecent(ctx); err != nil {
			return found, fmt.Errorf("confirm that %s %q is not there: %w", k.Resource, name, err)
		}
		e, ok = k.Store.Get(key)
	}
	if !ok {
		return found, apierrors.NewNotFound(k.Resource, name)
	}
	weigh(ctx, e.Size())
	obj, err := k.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return found, err
	}
	found, ok = obj.(T)
	if !ok {
		return found, fmt.Errorf("%s %q is a %T", k.Resource, name, obj)
	}
	return found, nil
}

// weigh has a request decode what is large in its turn, or without one: who looks it up has to
// know.
func weigh(ctx context.Context, size int) {
	if size >= request.LargeBody {
		request.Weigh(ctx, size)
	}
}

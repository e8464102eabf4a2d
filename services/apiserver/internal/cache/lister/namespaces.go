package lister

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/cache/objects"
)

// Namespaces looks up namespaces for admission. It confirms that the cache is current before it
// reports that a namespace does not exist.
type Namespaces struct {
	Objects *Objects
	Kind    CachedResource
}

// Phase reports whether a namespace exists and whether it is being terminated.
func (n *Namespaces) Phase(ctx context.Context, name string) (exists, terminating bool, err error) {
	e, err := n.findEntry(ctx, name)
	if e == nil || err != nil {
		return false, false, err
	}
	return true, e.Fields().Get("status.phase") == string(corev1.NamespaceTerminating), nil
}

// Labels implements matcher.Namespaces.
func (n *Namespaces) Labels(ctx context.Context, name string) (map[string]string, error) {
	e, err := n.findEntry(ctx, name)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return maps.Collect(e.Labels().All()), nil
}

// GetNamespace implements podnodeselector.Namespaces and podtolerationrestriction.Namespaces.
func (n *Namespaces) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return Get[*corev1.Namespace](ctx, n.Objects, &n.Kind, "", name)
}

// findEntry returns the cached entry of a namespace, or nil if the namespace does not exist. A corrupt namespace is an error:
// missing labels could admit objects that the labels forbid.
func (n *Namespaces) findEntry(ctx context.Context, name string) (*objects.Entry, error) {
	if err := n.Kind.WaitForWrites(ctx); err != nil {
		return nil, err
	}
	entry, ok := n.Kind.Store.Get(n.Kind.Prefix + name)
	if !ok {
		if _, err := n.Objects.Cache.MostRecent(ctx); err != nil {
			return nil, err
		}
		entry, ok = n.Kind.Store.Get(n.Kind.Prefix + name)
		if !ok {
			return nil, nil
		}
	}
	if err := entry.Corrupt(); err != nil {
		return nil, fmt.Errorf("namespace %s cannot be read: %w", name, err)
	}
	return entry, nil
}

// NewestNamespaces confirms that the cache is current before it reads a namespace. It does not
// return a label that another replica has just removed.
type NewestNamespaces struct{ Namespaces }

// Labels implements deviceadmin.Namespaces.
func (n *NewestNamespaces) Labels(ctx context.Context, name string) (map[string]string, error) {
	if _, err := n.Objects.Cache.MostRecent(ctx); err != nil {
		return nil, err
	}
	return n.Namespaces.Labels(ctx, name)
}

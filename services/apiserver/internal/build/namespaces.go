package build

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// namespaces looks up namespaces for admission. It confirms that the cache is current before it
// reports that a namespace does not exist.
type namespaces struct {
	objects *lister.Objects
	kind    lister.Kind
	client  *internalclient.Client
}

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

// GetNamespace implements podnodeselector.Namespaces and podtolerationrestriction.Namespaces.
func (n *namespaces) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return lister.Get[*corev1.Namespace](ctx, n.objects, &n.kind, "", name)
}

// find returns nil if the namespace does not exist. An unreadable namespace is an error: missing
// labels could admit objects that the labels forbid.
func (n *namespaces) find(ctx context.Context, name string) (*watchcache.Entry, error) {
	if err := n.kind.WaitForWrites(ctx); err != nil {
		return nil, err
	}
	e, ok := n.kind.Store.Get(n.kind.Prefix + name)
	if !ok {
		if _, err := n.objects.Cache.MostRecent(ctx); err != nil {
			return nil, err
		}
		if e, ok = n.kind.Store.Get(n.kind.Prefix + name); !ok {
			return nil, nil
		}
	}
	if err := e.Unreadable(); err != nil {
		return nil, fmt.Errorf("namespace %s cannot be read: %w", name, err)
	}
	return e, nil
}

// Create implements namespaceautoprovision.Namespaces.
func (n *namespaces) Create(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return n.client.Create(ctx, internalclient.Collection("", "v1", "namespaces", ""), ns)
}

// newestNamespaces confirms that the cache is current before it reads a namespace. A label that
// another replica has just removed is not seen.
type newestNamespaces struct{ namespaces }

// Labels implements deviceadmin.Namespaces.
func (n *newestNamespaces) Labels(ctx context.Context, name string) (map[string]string, error) {
	if _, err := n.objects.Cache.MostRecent(ctx); err != nil {
		return nil, err
	}
	return n.namespaces.Labels(ctx, name)
}

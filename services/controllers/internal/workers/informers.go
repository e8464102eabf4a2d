package workers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"binnacle/libs/kubeclient"
)

// pageSize is the maximum number of objects per page of a list.
const pageSize = 500

// NewInformer returns an informer of the objects that a field selector matches. example is an empty
// object.
func NewInformer[P, PL runtime.Object](client kubeclient.Interface[P, PL], example P, selector string,
	resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			return listAll(ctx, client, selector)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return client.Watch(ctx, o)
		},
	}, example, resync, indexers)
}

// listAll returns the newest objects that a field selector matches. The pages of client-go would
// not be limited: it lists at resource version 0, for which servers ignore the limit.
func listAll[P, PL runtime.Object](ctx context.Context, client kubeclient.Interface[P, PL],
	selector string) (runtime.Object, error) {
	all := &metainternalversion.List{}
	err := kubeclient.EachPage(ctx, pageSize, func(ctx context.Context, o metav1.ListOptions) (PL, error) {
		o.FieldSelector = selector
		return client.List(ctx, o)
	}, func(page PL) error {
		m, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		all.ResourceVersion = m.GetResourceVersion()
		items, err := meta.ExtractList(page)
		all.Items = append(all.Items, items...)
		return err
	})
	return all, err
}

// StripMetadata is a transform function of informers. It removes the managed fields.
func StripMetadata(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// SplitKey returns the namespace and the name of an object that an event handler gets, which may be
// the marker of a missed deletion.
func SplitKey(obj any) (namespace, name string, err error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return "", "", err
	}
	return cache.SplitMetaNamespaceKey(key)
}

// Active reports whether a store of namespaces has a namespace that is not terminating.
func Active(namespaces cache.Store, name string) (bool, error) {
	obj, ok, err := namespaces.GetByKey(name)
	if err != nil || !ok {
		return false, err
	}
	ns, ok := obj.(*corev1.Namespace)
	return ok && ns.DeletionTimestamp == nil && ns.Status.Phase == corev1.NamespaceActive, nil
}

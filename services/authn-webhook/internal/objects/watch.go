package objects

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"binnacle/libs/bootstraptoken"
)

// watch follows one kind of objects.
type watch struct {
	name     string
	informer cache.SharedIndexInformer
}

// get returns the known object, or nil. A nil watch knows none.
func (w *watch) get(namespace, name string) any {
	if w == nil {
		return nil
	}
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	found, ok, err := w.informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	return found
}

// watchMetadata follows the metadata of a kind. Tokens depend only on names and UIDs.
func watchMetadata(c metadata.Interface, resource string) *watch {
	all := c.Resource(coreResource(resource))
	return newWatch(resource, cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return all.Watch(ctx, o)
		},
	}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{}))
}

// watchSecrets follows the secrets of a type.
func watchSecrets(c *secretsClient, namespace string, kind corev1.SecretType) *watch {
	selector := fields.OneTermEqualSelector("type", string(kind))
	return newWatch("secrets of type "+string(kind), c.informer(namespace, selector))
}

func newWatch(name string, i cache.SharedIndexInformer) *watch {
	// It can fail only once the informer runs.
	_ = i.SetTransform(trimmed)
	return &watch{name: name, informer: i}
}

// trimmed reduces an object to the fields that lookups need.
func trimmed(obj any) (any, error) {
	switch o := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: identity(o.ObjectMeta)}, nil
	case *corev1.Secret:
		s := &corev1.Secret{ObjectMeta: identity(o.ObjectMeta), Type: o.Type, Data: o.Data}
		s.Labels = o.Labels // they record invalidated tokens
		if o.Type != bootstraptoken.SecretType {
			s.Data = map[string][]byte{corev1.ServiceAccountTokenKey: o.Data[corev1.ServiceAccountTokenKey]}
		}
		return s, nil
	}
	return obj, nil
}

func identity(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID,
		ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp,
	}
}

// run runs all watches and waits until they end.
func (o *Objects) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range o.watches {
		// It can fail only once the informer runs.
		_ = w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			o.log.Warn("watching", "objects", w.name, "error", err)
		})
		all.Go(func() { w.informer.RunWithContext(ctx) })
	}
	all.Wait()
	<-ctx.Done()
}

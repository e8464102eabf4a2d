package objects

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/kubeclient"
	"binnacle/libs/reflector"
)

const (
	// pageSize is how many complete objects are in memory at a time while listing.
	pageSize = 500
	// Backoff of failed lists and watches.
	minWatchRetry = 800 * time.Millisecond
	maxWatchRetry = 30 * time.Second
)

// objectWatch follows one kind of objects.
type objectWatch struct {
	name      string
	reflector *reflector.Reflector
	store     *reflector.Store[any] // of *PartialObjectMetadata or *Secret
}

// get returns an object from the watch, or nil. A nil watch has no objects.
func (w *objectWatch) get(namespace, name string) any {
	if w == nil {
		return nil
	}
	found, _ := w.store.Get(namespace, name)
	return found
}

// watchMetadata follows the metadata of a kind. Tokens depend only on names and UIDs.
func watchMetadata(c metadata.Interface, resource string, log *slog.Logger) *objectWatch {
	all := c.Resource(coreResource(resource))
	return newWatch(resource, log,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		all.Watch)
}

// watchSecrets follows the secrets of a type.
func watchSecrets(c *kubeclient.Client, namespace string, kind corev1.SecretType, log *slog.Logger) (*objectWatch, error) {
	secrets, err := kubeclient.NewResource[corev1.Secret, corev1.SecretList](c, coreResource(secretsResource), namespace)
	if err != nil {
		return nil, err
	}
	selector := fields.OneTermEqualSelector("type", string(kind)).String()
	return newWatch("secrets of type "+string(kind), log,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return secrets.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = selector
			return secrets.Watch(ctx, o)
		}), nil
}

// newWatch returns a watch with the requests of a resource.
func newWatch(name string, log *slog.Logger,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	follow func(context.Context, metav1.ListOptions) (apiwatch.Interface, error),
) *objectWatch {
	watch := &objectWatch{name: name, store: reflector.NewStore(keepFields, nil)}
	watch.reflector = reflector.New(reflector.Config{
		Resource: name,
		List:     list,
		Watch:    follow,
		Sink:     watch.store,
		PageSize: pageSize,
		MinRetry: minWatchRetry,
		MaxRetry: maxWatchRetry,
		Log:      log,
		Level:    slog.LevelWarn,
	})
	return watch
}

// keepFields returns the part of an object that lookups need.
func keepFields(obj metav1.Object) any {
	switch o := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: identityMeta(o.ObjectMeta)}
	case *corev1.Secret:
		secret := &corev1.Secret{ObjectMeta: identityMeta(o.ObjectMeta), Type: o.Type, Data: o.Data}
		secret.Labels = o.Labels // they record invalidated tokens
		if o.Type != bootstraptoken.SecretType {
			secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: o.Data[corev1.ServiceAccountTokenKey]}
		}
		return secret
	}
	return nil
}

// identityMeta returns metadata with the fields of m that identify an object and its state.
func identityMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID,
		ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp,
	}
}

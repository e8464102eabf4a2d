package noderestriction

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/lister"
)

// Lister implements Objects with the watch caches. It reads pods and nodes from Objects.
type Lister struct {
	*lister.Objects
	Claims, Volumes, Drivers lister.CachedResource
}

// Claim implements Objects.
func (o *Lister) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return singular(lister.Get[*corev1.PersistentVolumeClaim](ctx, o.Objects, &o.Claims, namespace, name))
}

// Volume implements Objects.
func (o *Lister) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return singular(lister.Get[*corev1.PersistentVolume](ctx, o.Objects, &o.Volumes, "", name))
}

// Driver implements Objects.
func (o *Lister) Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return singular(lister.Get[*storagev1.CSIDriver](ctx, o.Objects, &o.Drivers, "", name))
}

// Pod implements Objects.
func (o *Lister) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return singular(o.Objects.Pod(ctx, namespace, name))
}

// Node implements Objects.
func (o *Lister) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return singular(o.Objects.Node(ctx, name))
}

// singular replaces the plural resource in a NotFound error: "pods" becomes "pod". kube-apiserver
// does the same in the messages of this plugin. It returns other results unchanged.
func singular[T any](found T, err error) (T, error) {
	var status *apierrors.StatusError
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.ErrStatus.Details == nil {
		return found, err
	}
	d := status.ErrStatus.Details
	return found, apierrors.NewNotFound(schema.GroupResource{Group: d.Group, Resource: strings.TrimSuffix(d.Kind, "s")}, d.Name)
}

package build

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/admission/plugins/noderestriction"
	"binnacle/services/apiserver/internal/cache/lister"
)

// nodeRestriction creates the plugin that restricts kubelets to their own objects.
func (a *admissionBuilder) nodeRestriction() *noderestriction.Plugin {
	return &noderestriction.Plugin{
		Objects: &nodeObjects{
			Objects: a.caches.objects(true),
			claims:  a.caches.core("persistentvolumeclaims"),
			volumes: a.caches.core("persistentvolumes"),
			drivers: a.caches.lookup(storagev1.SchemeGroupVersion.WithResource("csidrivers")),
		},
		Authorizer:     a.authz.chain,
		Audiences:      a.gates.Enabled(features.ServiceAccountNodeAudienceRestriction),
		AnyCertificate: a.gates.Enabled(features.AllowInsecureKubeletCertificateSigningRequests),
	}
}

// nodeObjects implements noderestriction.Objects.
type nodeObjects struct {
	*lister.Objects
	claims, volumes, drivers lister.Kind
}

func (o *nodeObjects) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return singular(lister.Get[*corev1.PersistentVolumeClaim](ctx, o.Objects, &o.claims, namespace, name))
}

func (o *nodeObjects) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return singular(lister.Get[*corev1.PersistentVolume](ctx, o.Objects, &o.volumes, "", name))
}

func (o *nodeObjects) Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return singular(lister.Get[*storagev1.CSIDriver](ctx, o.Objects, &o.drivers, "", name))
}

func (o *nodeObjects) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return singular(o.Objects.Pod(ctx, namespace, name))
}

func (o *nodeObjects) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return singular(o.Objects.Node(ctx, name))
}

// singular changes the plural resource in a NotFound error to the singular, as kube-apiserver does
// in messages of this plugin.
func singular[T any](found T, err error) (T, error) {
	var status *apierrors.StatusError
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.ErrStatus.Details == nil {
		return found, err
	}
	d := status.ErrStatus.Details
	return found, apierrors.NewNotFound(schema.GroupResource{Group: d.Group, Resource: strings.TrimSuffix(d.Kind, "s")}, d.Name)
}

package app

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/admission/noderestriction"
	"binnacle/services/apiserver/internal/objects"
)

// nodeRestriction keeps kubelets to what is theirs.
func (p *parts) nodeRestriction() *noderestriction.Plugin {
	gates := p.options.Features
	return &noderestriction.Plugin{
		Objects: &nodeObjects{
			Objects: p.objects(true),
			claims:  p.lookup(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")),
			volumes: p.lookup(corev1.SchemeGroupVersion.WithResource("persistentvolumes")),
			drivers: p.lookup(storagev1.SchemeGroupVersion.WithResource("csidrivers")),
		},
		Authorizer:     p.authz.chain,
		Audiences:      gates.Enabled(features.ServiceAccountNodeAudienceRestriction),
		AnyCertificate: gates.Enabled(features.AllowInsecureKubeletCertificateSigningRequests),
	}
}

// nodeObjects looks up what kubelets are judged by.
type nodeObjects struct {
	*objects.Objects
	claims, volumes, drivers objects.Kind
}

func (o *nodeObjects) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return objects.Get[*corev1.PersistentVolumeClaim](ctx, o.Objects, &o.claims, namespace, name)
}

func (o *nodeObjects) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return objects.Get[*corev1.PersistentVolume](ctx, o.Objects, &o.volumes, "", name)
}

func (o *nodeObjects) Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return objects.Get[*storagev1.CSIDriver](ctx, o.Objects, &o.drivers, "", name)
}

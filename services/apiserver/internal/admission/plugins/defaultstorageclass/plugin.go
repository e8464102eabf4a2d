// Package defaultstorageclass sets the default storage class on volume claims without a class.
package defaultstorageclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "DefaultStorageClass"

// Annotations that mark the default class. The beta one is still in use.
const (
	defaultAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// Classes looks up storage classes. Default returns the name of the default class, or "" if there
// is none.
type Classes interface {
	Default(ctx context.Context) (string, error)
}

// Default returns the name of the default class among all classes, or "" if there is none.
func Default(all []*storagev1.StorageClass) string {
	return admission.DefaultClass(all, func(c *storagev1.StorageClass) bool {
		return c.Annotations[defaultAnnotation] == "true" || c.Annotations[betaDefaultAnnotation] == "true"
	})
}

// Plugin implements admission.Mutator.
type Plugin struct{ Classes Classes }

// Admit sets the default class on a new claim.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	claim, ok := req.Object.(*corev1.PersistentVolumeClaim)
	if !ok || req.Operation != admission.Create || !req.IsObject("", "persistentvolumeclaims") {
		return nil
	}
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named || claim.Spec.StorageClassName != nil {
		return nil
	}
	name, err := p.Classes.Default(ctx)
	if err != nil {
		return req.Forbidden(err)
	}
	if name != "" {
		claim.Spec.StorageClassName = &name
	}
	return nil
}

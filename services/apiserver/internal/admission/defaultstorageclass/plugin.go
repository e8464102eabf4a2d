// Package defaultstorageclass gives volume claims that name no storage class the
// default one.
package defaultstorageclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name of the plugin in flags and configuration.
const Name = "DefaultStorageClass"

// The annotation that marks the default class, and its older form.
const (
	annotation     = "storageclass.kubernetes.io/is-default-class"
	betaAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// Classes tells the default class; "" when there is none.
type Classes interface {
	Default(ctx context.Context) (string, error)
}

// Default is the name of the one that counts among classes: the newest of those
// that are marked, of equally old ones the first by name.
func Default(all []*storagev1.StorageClass) string {
	var found *storagev1.StorageClass
	for _, c := range all {
		if c.Annotations[annotation] != "true" && c.Annotations[betaAnnotation] != "true" {
			continue
		}
		newer := found == nil || found.CreationTimestamp.Before(&c.CreationTimestamp)
		if newer || found.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < found.Name {
			found = c
		}
	}
	if found == nil {
		return ""
	}
	return found.Name
}

// Plugin implements admission.Mutator.
type Plugin struct{ Classes Classes }

// Admit names the default class in a new claim.
func (p *Plugin) Admit(ctx context.Context, r *admission.Request) error {
	c, ok := r.Object.(*corev1.PersistentVolumeClaim)
	if !ok || r.Operation != admission.Create || !r.IsObject("", "persistentvolumeclaims") {
		return nil
	}
	if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; named || c.Spec.StorageClassName != nil {
		return nil
	}
	name, err := p.Classes.Default(ctx)
	if err != nil {
		return r.Forbidden(err)
	}
	if name != "" {
		c.Spec.StorageClassName = &name
	}
	return nil
}

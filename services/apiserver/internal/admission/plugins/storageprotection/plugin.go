// Package storageprotection adds finalizers to volumes, claims and volume attributes classes, so
// that they remain while they are in use. Controllers remove the finalizers.
package storageprotection

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
)

// Name is the name of the plugin in flags and configuration.
const Name = "StorageObjectInUseProtection"

// The finalizers.
const (
	volumeFinalizer = "kubernetes.io/pv-protection"
	claimFinalizer  = "kubernetes.io/pvc-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
)

// Plugin implements admission.Mutator.
type Plugin struct {
	// AttributesClasses includes volume attributes classes (feature gate VolumeAttributesClass).
	AttributesClasses bool
}

// Admit adds the missing finalizer to a new object.
func (p Plugin) Admit(_ context.Context, r *admission.Request) error {
	if r.Operation != admission.Create || r.Subresource != "" {
		return nil
	}
	f := ""
	switch {
	case r.IsResource("", "persistentvolumes"):
		f = volumeFinalizer
	case r.IsResource("", "persistentvolumeclaims"):
		f = claimFinalizer
	case p.AttributesClasses && r.IsResource(storagev1.GroupName, "volumeattributesclasses"):
		f = classFinalizer
	}
	if o, ok := r.Object.(registry.Object); ok && f != "" && !slices.Contains(o.GetFinalizers(), f) {
		o.SetFinalizers(append(o.GetFinalizers(), f))
	}
	return nil
}

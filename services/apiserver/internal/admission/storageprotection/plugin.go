// Package storageprotection puts finalizers on volumes, claims and classes of
// volume attributes, so that they stay while something uses them; controllers
// take them away.
package storageprotection

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
)

// Name of the plugin in flags and configuration.
const Name = "StorageObjectInUseProtection"

// The finalizers.
const (
	volumeFinalizer = "kubernetes.io/pv-protection"
	claimFinalizer  = "kubernetes.io/pvc-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
)

// Plugin implements admission.Mutator.
type Plugin struct {
	// AttributesClasses includes classes of volume attributes (feature gate
	// VolumeAttributesClass).
	AttributesClasses bool
}

// Admit adds the finalizer that a new object lacks.
func (p Plugin) Admit(_ context.Context, r *admission.Request) error {
	if r.Operation != admission.Create || r.Subresource != "" {
		return nil
	}
	f := ""
	switch {
	case r.Is("", "persistentvolumes"):
		f = volumeFinalizer
	case r.Is("", "persistentvolumeclaims"):
		f = claimFinalizer
	case p.AttributesClasses && r.Is(storagev1.GroupName, "volumeattributesclasses"):
		f = classFinalizer
	}
	if o, ok := r.Object.(registry.Object); ok && f != "" && !slices.Contains(o.GetFinalizers(), f) {
		o.SetFinalizers(append(o.GetFinalizers(), f))
	}
	return nil
}

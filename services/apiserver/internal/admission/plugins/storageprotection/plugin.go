// Package storageprotection adds finalizers to volumes, claims and volume attributes classes, so
// that they are not removed while they are in use. Controllers in kube-controller-manager remove
// the finalizers.
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

// Finalizers of persistent volumes, volume claims and volume attributes classes.
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
func (p Plugin) Admit(_ context.Context, req *admission.Request) error {
	if req.Operation != admission.Create || req.Subresource != "" {
		return nil
	}
	finalizer := ""
	switch {
	case req.IsResource("", "persistentvolumes"):
		finalizer = volumeFinalizer
	case req.IsResource("", "persistentvolumeclaims"):
		finalizer = claimFinalizer
	case p.AttributesClasses && req.IsResource(storagev1.GroupName, "volumeattributesclasses"):
		finalizer = classFinalizer
	}
	if o, ok := req.Object.(registry.Object); ok && finalizer != "" && !slices.Contains(o.GetFinalizers(), finalizer) {
		o.SetFinalizers(append(o.GetFinalizers(), finalizer))
	}
	return nil
}

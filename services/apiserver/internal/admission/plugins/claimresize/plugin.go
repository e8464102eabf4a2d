// Package claimresize rejects the growth of volume claims whose storage class does not allow it.
package claimresize

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "PersistentVolumeClaimResize"

// Classes looks up storage classes. Get returns an error if there is no class of that name.
type Classes interface {
	Get(ctx context.Context, name string) (*storagev1.StorageClass, error)
}

// Plugin implements admission.Validator.
type Plugin struct{ Classes Classes }

var errNotResizable = errors.New(
	"only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")

// Validate rejects the growth of a claim that cannot grow.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	claim, ok := req.Object.(*corev1.PersistentVolumeClaim)
	if !ok || req.Operation != admission.Update || !req.IsObject("", "persistentvolumeclaims") {
		return nil
	}
	old, ok := req.OldObject.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	oldSize := old.Spec.Resources.Requests[corev1.ResourceStorage]
	newSize := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if newSize.Cmp(oldSize) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return req.Forbiddenf("Only bound persistent volume claims can be expanded") //nolint:staticcheck // the wording is the API's
	}
	name := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if name == "" && claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	if name == "" {
		return req.Forbidden(errNotResizable)
	}
	class, err := p.Classes.Get(ctx, name)
	if err != nil || class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return req.Forbidden(errNotResizable)
	}
	return nil
}

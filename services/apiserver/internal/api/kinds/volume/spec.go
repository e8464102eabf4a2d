package volume

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// ValidateSpec validates the specification of a named volume.
func ValidateSpec(fld validate.Field, name string, s *corev1.PersistentVolumeSpec) {
	podspec.ValidateAccessModes(fld, s.AccessModes)
	fld.RequireSet("accessModes", len(s.AccessModes) > 0)
	validateCapacity(fld, s.Capacity)
	validate.OptionalOneOf(fld, "persistentVolumeReclaimPolicy", nilIfEmpty(&s.PersistentVolumeReclaimPolicy),
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	validate.Optional(fld, "nodeAffinity", s.NodeAffinity, func(fld validate.Field, a *corev1.VolumeNodeAffinity) {
		if a.Required == nil {
			fld.Required("required", "must specify required node constraints")
			return
		}
		podspec.ValidateNodeSelector(fld.Child("required"), a.Required, false)
	})
	validateSource(fld, name, &s.PersistentVolumeSource, s.NodeAffinity != nil)
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" &&
		s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		fld.Forbidden("persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
	}
	fld.CheckOptionalText("storageClassName", s.StorageClassName, validate.DNSSubdomain)
	validate.OptionalOneOf(fld, "volumeMode", s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

// nilIfEmpty returns nil for an empty text, and s otherwise.
func nilIfEmpty[T ~string](s *T) *T {
	if *s == "" {
		return nil
	}
	return s
}

func validateCapacity(fld validate.Field, capacity corev1.ResourceList) {
	fld.RequireSet("capacity", len(capacity) > 0)
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		fld.Add(field.NotSupported(fld.Child("capacity").FieldPath(), validate.InternalValue(capacity),
			[]corev1.ResourceName{corev1.ResourceStorage}))
	}
	validate.EachQuantity(fld, "capacity", capacity, func(fld validate.Field, _ corev1.ResourceName, q validate.Quantity) {
		fld.CheckBasicQuantity("", q)
		fld.CheckPositiveQuantity("", q)
	})
}

// inline ends the errors of ValidateInlineVolume.
const inline = "in the context of inline volumes"

// ValidateInlineVolume validates the specification of a volume inside an attachment, which is
// neither bound nor provisioned.
func ValidateInlineVolume(fld validate.Field, s *corev1.PersistentVolumeSpec) {
	const never = "may not be specified " + inline
	fld.ForbidSet("claimRef", s.ClaimRef != nil, never)
	fld.ForbidSet("capacity", len(s.Capacity) > 0, never)
	if s.CSI == nil {
		fld.Required("csi", "has to be specified "+inline)
	}
	podspec.ValidateAccessModes(fld, s.AccessModes)
	fld.RequireSet("accessModes", len(s.AccessModes) > 0)
	fld.ForbidSet("persistentVolumeReclaimPolicy",
		s.PersistentVolumeReclaimPolicy != "" && s.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain,
		"may only be Retain "+inline)
	fld.ForbidSet("nodeAffinity", s.NodeAffinity != nil, never)
	validateSource(fld, "", &s.PersistentVolumeSource, false)
	fld.ForbidSet("storageClassName", s.StorageClassName != "", never)
	fld.ForbidSet("volumeMode", s.VolumeMode != nil && *s.VolumeMode != corev1.PersistentVolumeFilesystem,
		"may not specify volumeMode other than Filesystem "+inline)
}

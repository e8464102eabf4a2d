package volume

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Rules validates the specification of a named volume.
func Rules(fldPath validate.Path, name string, s *corev1.PersistentVolumeSpec) {
	podspec.AccessModeRules(fldPath, s.AccessModes)
	fldPath.Present("accessModes", len(s.AccessModes) > 0)
	capacityRules(fldPath, s.Capacity)
	validate.OptionalOneOf(fldPath, "persistentVolumeReclaimPolicy", set(&s.PersistentVolumeReclaimPolicy),
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	validate.Optional(fldPath, "nodeAffinity", s.NodeAffinity, func(fldPath validate.Path, a *corev1.VolumeNodeAffinity) {
		if a.Required == nil {
			fldPath.Required("required", "must specify required node constraints")
			return
		}
		podspec.NodeSelectorRules(fldPath.Child("required"), a.Required, false)
	})
	sourceRules(fldPath, name, s)
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		fldPath.Forbidden("persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
	}
	fldPath.OptionalText("storageClassName", s.StorageClassName, validate.DNSSubdomain)
	validate.OptionalOneOf(fldPath, "volumeMode", s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

// set returns nil for an empty text.
func set[T ~string](s *T) *T {
	if *s == "" {
		return nil
	}
	return s
}

func capacityRules(fldPath validate.Path, capacity corev1.ResourceList) {
	fldPath.Present("capacity", len(capacity) > 0)
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		fldPath.Add(field.NotSupported(fldPath.Child("capacity").FieldPath(), validate.InternalValue(capacity), []corev1.ResourceName{corev1.ResourceStorage}))
	}
	validate.EachQuantity(fldPath, "capacity", capacity, func(fldPath validate.Path, _ corev1.ResourceName, q validate.Quantity) {
		fldPath.BasicQuantity("", q)
		fldPath.PositiveQuantity("", q)
	})
}

const inline = "in the context of inline volumes"

// InlineRules validates the specification of a volume inside an attachment, which is neither bound
// nor provisioned.
func InlineRules(fldPath validate.Path, s *corev1.PersistentVolumeSpec) {
	const never = "may not be specified " + inline
	fldPath.Absent("claimRef", s.ClaimRef != nil, never)
	fldPath.Absent("capacity", len(s.Capacity) > 0, never)
	if s.CSI == nil {
		fldPath.Required("csi", "has to be specified "+inline)
	}
	podspec.AccessModeRules(fldPath, s.AccessModes)
	fldPath.Present("accessModes", len(s.AccessModes) > 0)
	fldPath.Absent("persistentVolumeReclaimPolicy", s.PersistentVolumeReclaimPolicy != "" && s.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain,
		"may only be Retain "+inline)
	fldPath.Absent("nodeAffinity", s.NodeAffinity != nil, never)
	sourceRules(fldPath, "", s)
	fldPath.Absent("storageClassName", s.StorageClassName != "", never)
	fldPath.Absent("volumeMode", s.VolumeMode != nil && *s.VolumeMode != corev1.PersistentVolumeFilesystem,
		"may not specify volumeMode other than Filesystem "+inline)
}

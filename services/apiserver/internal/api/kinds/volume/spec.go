package volume

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Rules validates the specification of a named volume.
func Rules(at validate.At, name string, s *corev1.PersistentVolumeSpec) {
	podspec.AccessModeRules(at, s.AccessModes)
	at.Present("accessModes", len(s.AccessModes) > 0)
	capacityRules(at, s.Capacity)
	validate.OptionalOneOf(at, "persistentVolumeReclaimPolicy", set(&s.PersistentVolumeReclaimPolicy),
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	validate.Optional(at, "nodeAffinity", s.NodeAffinity, func(at validate.At, a *corev1.VolumeNodeAffinity) {
		if a.Required == nil {
			at.Required("required", "must specify required node constraints")
			return
		}
		podspec.NodeSelectorRules(at.Child("required"), a.Required, false)
	})
	sourceRules(at, name, &s.PersistentVolumeSource)
	if s.Local != nil && s.NodeAffinity == nil {
		at.Required("nodeAffinity", "Local volume requires node affinity")
	}
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		at.Forbidden("persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
	}
	at.OptionalText("storageClassName", s.StorageClassName, validate.DNSSubdomain)
	validate.OptionalOneOf(at, "volumeMode", s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

// set returns nil for an empty text.
func set[T ~string](s *T) *T {
	if *s == "" {
		return nil
	}
	return s
}

func capacityRules(at validate.At, capacity corev1.ResourceList) {
	at.Present("capacity", len(capacity) > 0)
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		at.Add(field.NotSupported(at.Child("capacity").Path(), validate.Internal(capacity), []corev1.ResourceName{corev1.ResourceStorage}))
	}
	validate.EachQuantity(at, "capacity", capacity, func(at validate.At, _ corev1.ResourceName, q validate.Quantity) {
		at.BasicQuantity("", q)
		at.PositiveQuantity("", q)
	})
}

const inline = "in the context of inline volumes"

// InlineRules validates the specification of a volume inside an attachment, which is neither bound
// nor provisioned.
func InlineRules(at validate.At, s *corev1.PersistentVolumeSpec) {
	const never = "may not be specified " + inline
	at.Absent("claimRef", s.ClaimRef != nil, never)
	at.Absent("capacity", len(s.Capacity) > 0, never)
	if s.CSI == nil {
		at.Required("csi", "has to be specified "+inline)
	}
	podspec.AccessModeRules(at, s.AccessModes)
	at.Present("accessModes", len(s.AccessModes) > 0)
	at.Absent("persistentVolumeReclaimPolicy", s.PersistentVolumeReclaimPolicy != "" && s.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain,
		"may only be Retain "+inline)
	at.Absent("nodeAffinity", s.NodeAffinity != nil, never)
	sourceRules(at, "", &s.PersistentVolumeSource)
	at.Absent("storageClassName", s.StorageClassName != "", never)
	at.Absent("volumeMode", s.VolumeMode != nil && *s.VolumeMode != corev1.PersistentVolumeFilesystem,
		"may not specify volumeMode other than Filesystem "+inline)
}

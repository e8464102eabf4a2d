package volume

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// ValidateSpec validates the specification of a named volume.
func ValidateSpec(fld validate.Field, name string, spec *corev1.PersistentVolumeSpec) {
	podspec.ValidateAccessModes(fld, spec.AccessModes)
	fld.RequireSet("accessModes", len(spec.AccessModes) > 0)
	validateCapacity(fld, spec.Capacity)
	validate.OptionalOneOf(fld, "persistentVolumeReclaimPolicy", nilIfEmpty(&spec.PersistentVolumeReclaimPolicy),
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	validate.Optional(fld, "nodeAffinity", spec.NodeAffinity, func(fld validate.Field, volumeNodeAffinity *corev1.VolumeNodeAffinity) {
		if volumeNodeAffinity.Required == nil {
			fld.Required("required", "must specify required node constraints")
			return
		}
		podspec.ValidateNodeSelector(fld.Child("required"), volumeNodeAffinity.Required, false)
	})
	validateSource(fld, name, &spec.PersistentVolumeSource, spec.NodeAffinity != nil)
	if spec.HostPath != nil && path.Clean(spec.HostPath.Path) == "/" &&
		spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		fld.Forbidden("persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
	}
	fld.CheckOptionalText("storageClassName", spec.StorageClassName, validate.DNSSubdomain)
	validate.OptionalOneOf(fld, "volumeMode", spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
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
func ValidateInlineVolume(fld validate.Field, spec *corev1.PersistentVolumeSpec) {
	const never = "may not be specified " + inline
	fld.ForbidSet("claimRef", spec.ClaimRef != nil, never)
	fld.ForbidSet("capacity", len(spec.Capacity) > 0, never)
	if spec.CSI == nil {
		fld.Required("csi", "has to be specified "+inline)
	}
	podspec.ValidateAccessModes(fld, spec.AccessModes)
	fld.RequireSet("accessModes", len(spec.AccessModes) > 0)
	fld.ForbidSet("persistentVolumeReclaimPolicy",
		spec.PersistentVolumeReclaimPolicy != "" && spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain,
		"may only be Retain "+inline)
	fld.ForbidSet("nodeAffinity", spec.NodeAffinity != nil, never)
	validateSource(fld, "", &spec.PersistentVolumeSource, false)
	fld.ForbidSet("storageClassName", spec.StorageClassName != "", never)
	fld.ForbidSet("volumeMode", spec.VolumeMode != nil && *spec.VolumeMode != corev1.PersistentVolumeFilesystem,
		"may not specify volumeMode other than Filesystem "+inline)
}

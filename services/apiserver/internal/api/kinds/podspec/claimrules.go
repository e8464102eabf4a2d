package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// claimTemplateRules validates the template of a claim that is created for a pod. Its metadata has
// labels and annotations only.
func claimTemplateRules(at validate.At, t *corev1.PersistentVolumeClaimTemplate) {
	meta := at.Child("metadata")
	meta.Annotations("annotations", t.Annotations)
	meta.Labels("labels", t.Labels)
	meta.OnlyFields(t.ObjectMeta, "cannot be set", "Annotations", "Labels")
	ClaimRules(at.Child("spec"), &t.Spec, nil)
}

// AccessModeRules requires known modes. ReadWriteOncePod excludes other modes.
func AccessModeRules(at validate.At, modes []corev1.PersistentVolumeAccessMode) {
	others := false
	for _, mode := range modes {
		validate.OneOf(at, "accessModes", mode,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		others = others || mode == corev1.ReadOnlyMany || mode == corev1.ReadWriteMany || mode == corev1.ReadWriteOnce
	}
	at.Absent("accessModes", others && slices.Contains(modes, corev1.ReadWriteOncePod), "may not use ReadWriteOncePod with other access modes")
}

// ClaimRules validates the spec of a claim. old is nil at creation.
func ClaimRules(at validate.At, s, old *corev1.PersistentVolumeClaimSpec) {
	if len(s.AccessModes) == 0 {
		at.Required("accessModes", "at least 1 access mode is required")
	}
	at.Selector("selector", s.Selector, old != nil && validate.HasInvalidValue(old.Selector))
	AccessModeRules(at, s.AccessModes)
	size := at.Key("resources", string(corev1.ResourceStorage))
	if q, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		size.Required("", "")
	} else {
		size.PositiveQuantity("", q)
	}
	if s.StorageClassName != nil {
		at.OptionalText("storageClassName", *s.StorageClassName, validate.DNSSubdomain)
	}
	validate.OptionalOneOf(at, "volumeMode", s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	validate.Optional(at, "dataSource", s.DataSource, func(at validate.At, r *corev1.TypedLocalObjectReference) {
		dataSourceRules(at, r.APIGroup, r.Kind, r.Name)
	})
	validate.Optional(at, "dataSourceRef", s.DataSourceRef, func(at validate.At, r *corev1.TypedObjectReference) {
		dataSourceRules(at, r.APIGroup, r.Kind, r.Name)
		if r.Namespace != nil {
			at.OptionalText("namespace", *r.Namespace, validate.DNSLabel)
		}
	})
	source, ref := s.DataSource, s.DataSourceRef
	if source == nil || ref == nil {
		return
	}
	switch {
	case ref.Namespace != nil && *ref.Namespace != "":
		at.Invalid("", at.Child("dataSource").Path(), "may not be specified when dataSourceRef.namespace is specified")
	case !validate.Same(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		at.Invalid("", at.Child("dataSource").Path(), "must match dataSourceRef")
	}
}

func dataSourceRules(at validate.At, group *string, kind, name string) {
	at.Present("name", name != "")
	at.Present("kind", kind != "")
	if group == nil || *group == "" {
		if kind != "PersistentVolumeClaim" {
			at.Invalid("", kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
		}
		return
	}
	at.Text("apiGroup", *group, validate.DNSSubdomain)
}

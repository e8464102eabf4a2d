package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// persistentVolumeClaims declares the namespaced kind PersistentVolumeClaim.
func persistentVolumeClaims(settings registry.Settings) *registry.Kind {
	gates := claimGates{settings.Enabled(features.CrossNamespaceVolumeDataSource), settings.Enabled(features.VolumeAttributesClass)}
	return declare.Kind[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim",
			ShortNames: []string{"pvc"}, Namespaced: true,
		},
		Parts: declare.SpecStatusAccessors(func(p *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaimSpec, *corev1.PersistentVolumeClaimStatus) {
			return &p.Spec, &p.Status
		}),
		Default:        declare.Adapt(poddefaults.Claim),
		AfterDecode:    declare.Adapt(func(c *corev1.PersistentVolumeClaim) { pairDataSources(&c.Spec) }),
		DefaultedRules: claimDefaultedRules,
		Create: registry.Create{
			Prepare: declare.Adapt(func(c *corev1.PersistentVolumeClaim) {
				c.Status = corev1.PersistentVolumeClaimStatus{} // each reader gets the default phase
				gates.drop(&c.Spec, nil)
				pairDataSources(&c.Spec)
			}),
			Validate: declare.AdaptValidation(func(fld validate.Field, c *corev1.PersistentVolumeClaim) {
				podspec.ValidateClaimSpec(fld.Child("spec"), &c.Spec, nil)
			}),
			Warnings: declare.AdaptResult(claimWarnings),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			Prepare: declare.AdaptUpdate(func(c, old *corev1.PersistentVolumeClaim) {
				gates.drop(&c.Spec, &old.Spec)
				pairDataSources(&c.Spec)
			}),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *corev1.PersistentVolumeClaim) {
				fld.RecordTwice(func() { podspec.ValidateClaimSpec(fld.Child("spec"), &c.Spec, &old.Spec) })
				validateClaimChanges(fld, c, old)
				validateAttributesClassChange(
					fld.Child("spec"),
					c.Spec.VolumeAttributesClassName,
					old.Spec.VolumeAttributesClassName,
					gates.attributesClasses,
				)
			}),
		},
		Delete:       registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: claimColumns()},
		Subresources: []registry.Subresource{
			declare.ValidatedView("status", "PersistentVolumeClaim", func(c, old *corev1.PersistentVolumeClaim) {
				c.Spec = old.Spec
				gates.dropStatus(&c.Status, &old.Status)
			}, validateClaimStatus),
		},
	})
}

func claimWarnings(c *corev1.PersistentVolumeClaim) (texts []string) {
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		texts = append(texts, fmt.Sprintf(`%s: deprecated since v1.8; use "storageClassName" attribute instead`,
			field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation)))
	}
	return append(texts, podspec.ClaimWarnings(field.NewPath("spec"), &c.Spec)...)
}

// pairDataSources sets a missing data source field from the other one. A source in another
// namespace has no old form.
func pairDataSources(s *corev1.PersistentVolumeClaimSpec) {
	switch {
	case s.DataSource != nil && s.DataSourceRef == nil:
		from := s.DataSource.DeepCopy()
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
	case s.DataSource == nil && s.DataSourceRef != nil:
		from := s.DataSourceRef.DeepCopy()
		if from.Namespace == nil || *from.Namespace == "" {
			s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
		}
	}
}

func claimColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(corev1.PersistentVolumeClaimSpec{}, name) }
	stat := func(name string) string { return columns.Doc(corev1.PersistentVolumeClaimStatus{}, name) }
	bound := func(c *corev1.PersistentVolumeClaim, text func() string) string {
		if c.Spec.VolumeName == "" {
			return ""
		}
		return text()
	}
	return []registry.Column{
		columns.Name(),
		columns.Text("Status", stat("phase"), func(c *corev1.PersistentVolumeClaim) string {
			return phaseOrTerminating(c, string(c.Status.Phase))
		}),
		columns.Text("Volume", spec("volumeName"), func(c *corev1.PersistentVolumeClaim) string { return c.Spec.VolumeName }),
		columns.Text("Capacity", stat("capacity"), func(c *corev1.PersistentVolumeClaim) string {
			return bound(c, func() string { return storageText(c.Status.Capacity) })
		}),
		columns.Text("Access Modes", stat("accessModes"), func(c *corev1.PersistentVolumeClaim) string {
			return bound(c, func() string { return accessModes(c.Status.AccessModes) })
		}),
		columns.Text("StorageClass", "StorageClass of the pvc", func(c *corev1.PersistentVolumeClaim) string {
			class := ""
			if c.Spec.StorageClassName != nil {
				class = *c.Spec.StorageClassName
			}
			return storageClass(c, class)
		}),
		columns.Text("VolumeAttributesClass", "VolumeAttributesClass of the pvc", func(c *corev1.PersistentVolumeClaim) string {
			return textOrUnset(c.Spec.VolumeAttributesClassName)
		}),
		columns.Age(),
		columns.WideText(
			"VolumeMode",
			spec("volumeMode"),
			func(c *corev1.PersistentVolumeClaim) string { return textOrUnset(c.Spec.VolumeMode) },
		),
	}
}

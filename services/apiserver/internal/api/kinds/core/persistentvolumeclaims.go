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
		AfterDecode:    declare.Adapt(func(claim *corev1.PersistentVolumeClaim) { pairDataSources(&claim.Spec) }),
		DefaultedRules: claimDefaultedRules,
		Create: registry.Create{
			Prepare: declare.Adapt(func(claim *corev1.PersistentVolumeClaim) {
				claim.Status = corev1.PersistentVolumeClaimStatus{} // each reader gets the default phase
				gates.drop(&claim.Spec, nil)
				pairDataSources(&claim.Spec)
			}),
			Validate: declare.AdaptValidation(func(fld validate.Field, claim *corev1.PersistentVolumeClaim) {
				podspec.ValidateClaimSpec(fld.Child("spec"), &claim.Spec, nil)
			}),
			Warnings: declare.AdaptResult(claimWarnings),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			Prepare: declare.AdaptUpdate(func(claim, old *corev1.PersistentVolumeClaim) {
				gates.drop(&claim.Spec, &old.Spec)
				pairDataSources(&claim.Spec)
			}),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, claim, old *corev1.PersistentVolumeClaim) {
				fld.RecordTwice(func() { podspec.ValidateClaimSpec(fld.Child("spec"), &claim.Spec, &old.Spec) })
				validateClaimChanges(fld, claim, old)
				validateAttributesClassChange(
					fld.Child("spec"),
					claim.Spec.VolumeAttributesClassName,
					old.Spec.VolumeAttributesClassName,
					gates.attributesClasses,
				)
			}),
		},
		Delete:       registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: claimColumns()},
		Subresources: []registry.Subresource{
			declare.ValidatedView("status", "PersistentVolumeClaim", func(claim, old *corev1.PersistentVolumeClaim) {
				claim.Spec = old.Spec
				gates.dropStatus(&claim.Status, &old.Status)
			}, validateClaimStatus),
		},
	})
}

func claimWarnings(claim *corev1.PersistentVolumeClaim) (texts []string) {
	if _, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		texts = append(texts, fmt.Sprintf(`%s: deprecated since v1.8; use "storageClassName" attribute instead`,
			field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation)))
	}
	return append(texts, podspec.ClaimWarnings(field.NewPath("spec"), &claim.Spec)...)
}

// pairDataSources sets a missing data source field from the other one. A source in another
// namespace has no old form.
func pairDataSources(spec *corev1.PersistentVolumeClaimSpec) {
	switch {
	case spec.DataSource != nil && spec.DataSourceRef == nil:
		from := spec.DataSource.DeepCopy()
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
	case spec.DataSource == nil && spec.DataSourceRef != nil:
		from := spec.DataSourceRef.DeepCopy()
		if from.Namespace == nil || *from.Namespace == "" {
			spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
		}
	}
}

func claimColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(corev1.PersistentVolumeClaimSpec{}, name) }
	stat := func(name string) string { return columns.Doc(corev1.PersistentVolumeClaimStatus{}, name) }
	bound := func(claim *corev1.PersistentVolumeClaim, text func() string) string {
		if claim.Spec.VolumeName == "" {
			return ""
		}
		return text()
	}
	return []registry.Column{
		columns.Name(),
		columns.Text("Status", stat("phase"), func(claim *corev1.PersistentVolumeClaim) string {
			return phaseOrTerminating(claim, string(claim.Status.Phase))
		}),
		columns.Text("Volume", spec("volumeName"), func(claim *corev1.PersistentVolumeClaim) string { return claim.Spec.VolumeName }),
		columns.Text("Capacity", stat("capacity"), func(claim *corev1.PersistentVolumeClaim) string {
			return bound(claim, func() string { return storageText(claim.Status.Capacity) })
		}),
		columns.Text("Access Modes", stat("accessModes"), func(claim *corev1.PersistentVolumeClaim) string {
			return bound(claim, func() string { return accessModes(claim.Status.AccessModes) })
		}),
		columns.Text("StorageClass", "StorageClass of the pvc", func(claim *corev1.PersistentVolumeClaim) string {
			class := ""
			if claim.Spec.StorageClassName != nil {
				class = *claim.Spec.StorageClassName
			}
			return storageClass(claim, class)
		}),
		columns.Text("VolumeAttributesClass", "VolumeAttributesClass of the pvc", func(claim *corev1.PersistentVolumeClaim) string {
			return textOrUnset(claim.Spec.VolumeAttributesClassName)
		}),
		columns.Age(),
		columns.WideText(
			"VolumeMode",
			spec("volumeMode"),
			func(claim *corev1.PersistentVolumeClaim) string { return textOrUnset(claim.Spec.VolumeMode) },
		),
	}
}

package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/api/kinds/volume"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
	"binnacle/services/apiserver/internal/registry/valuediff"
)

// persistentVolumes declares the cluster-scoped kind PersistentVolume.
func persistentVolumes(settings registry.Settings) *registry.Kind {
	hasAttributesClasses := settings.Enabled(features.VolumeAttributesClass)
	return declare.Kind[corev1.PersistentVolume, corev1.PersistentVolumeList](&registry.Kind{
		Names: registry.Names{Version: version, Resource: "persistentvolumes", Kind: "PersistentVolume", ShortNames: []string{"pv"}},
		Parts: declare.SpecStatusAccessors(func(p *corev1.PersistentVolume) (*corev1.PersistentVolumeSpec, *corev1.PersistentVolumeStatus) {
			return &p.Spec, &p.Status
		}),
		Default:        declare.Adapt(defaultVolume),
		DefaultedRules: volumeDefaultedRules,
		Create: registry.Create{
			Prepare: declare.Adapt(func(v *corev1.PersistentVolume) {
				now := metav1.Now()
				v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
				if !hasAttributesClasses {
					v.Spec.VolumeAttributesClassName = nil
				}
			}),
			Validate: declare.AdaptValidation(validateVolume),
			Warnings: declare.AdaptResult(volumeWarnings),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaRules, registry.MetaRules, registry.UpdateRules},
			Prepare: declare.AdaptUpdate(func(v, old *corev1.PersistentVolume) {
				if !hasAttributesClasses && old.Spec.VolumeAttributesClassName == nil {
					v.Spec.VolumeAttributesClassName = nil
				}
			}),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, v, old *corev1.PersistentVolume) {
				validateVolume(fld, v)
				volume.ValidateSpec(fld.Child("spec"), v.Name, &v.Spec)
				validateVolumeChanges(fld, v, old)
				validateAttributesClassChange(
					fld.Child("spec"),
					v.Spec.VolumeAttributesClassName,
					old.Spec.VolumeAttributesClassName,
					hasAttributesClasses,
				)
			}),
		},
		Delete:       registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: volumeColumns()},
		Subresources: []registry.Subresource{
			declare.View("status", "PersistentVolume", declare.AdaptUpdate(prepareVolumeStatus)),
		},
	})
}

func defaultVolume(v *corev1.PersistentVolume) {
	declare.SetDefault(&v.Status.Phase, corev1.VolumePending)
	declare.SetDefault(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	declare.SetDefaultPtr(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	poddefaults.Round(v.Spec.Capacity)
	volume.DefaultSource(&v.Spec.PersistentVolumeSource)
}

// validateVolume validates a new or changed volume.
func validateVolume(fld validate.Field, v *corev1.PersistentVolume) {
	volume.ValidateSpec(fld.Child("spec"), v.Name, &v.Spec)
	spec := &v.Spec
	// The annotation with mount options is valid only for the types that existed before the field
	// mountOptions.
	allowsAnnotation := spec.GCEPersistentDisk != nil || spec.AWSElasticBlockStore != nil || spec.Glusterfs != nil || spec.NFS != nil ||
		spec.RBD != nil || spec.Quobyte != nil || spec.ISCSI != nil || spec.Cinder != nil || spec.CephFS != nil || spec.AzureFile != nil ||
		spec.VsphereVolume != nil || spec.AzureDisk != nil || spec.PhotonPersistentDisk != nil
	if _, has := v.Annotations[corev1.MountOptionAnnotation]; has && !allowsAnnotation {
		fld.Child("metadata", "annotations").
			Forbidden(corev1.MountOptionAnnotation, "may not specify mount options for this volume type")
	}
}

// validateVolumeChanges rejects changes of a volume's source, mode and node affinity. The reference to
// the secret for expansion can be set once.
func validateVolumeChanges(fld validate.Field, persistentVolume, old *corev1.PersistentVolume) {
	now := persistentVolume.Spec.PersistentVolumeSource
	if csi, was := now.CSI, old.Spec.CSI; csi != nil && was != nil && was.ControllerExpandSecretRef == nil &&
		csi.ControllerExpandSecretRef != nil {
		now.CSI = csi.DeepCopy()
		now.CSI.ControllerExpandSecretRef = nil
	}
	if !validate.SemanticEqual(now, old.Spec.PersistentVolumeSource) {
		fld.Child("spec").Forbidden("persistentvolumesource", "spec.persistentvolumesource is immutable after creation\n"+
			valuediff.Text(old.Spec.PersistentVolumeSource, now))
	}
	fld.CheckImmutable("volumeMode", persistentVolume.Spec.VolumeMode, old.Spec.VolumeMode)
	affinity, was := persistentVolume.Spec.NodeAffinity, old.Spec.NodeAffinity
	if was != nil && !validate.SemanticEqual(affinity, withCurrentLabelNames(was, affinity)) {
		fld.Invalid("nodeAffinity", affinity, "field is immutable, except for updating from beta label to GA")
	}
}

// currentLabels maps the beta names of node labels to their current names.
var currentLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
}

// withCurrentLabelNames returns the old affinity with the beta names of node labels replaced where
// now has their current names. As in Kubernetes, an empty name in now replaces any other name, so
// that only the validation of now reports it.
func withCurrentLabelNames(old, now *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	if old.Required == nil || now == nil || now.Required == nil {
		return old
	}
	old = old.DeepCopy()
	replaceNames := func(old, now []corev1.NodeSelectorRequirement) {
		for i := range min(len(old), len(now)) {
			if now[i].Key == currentLabels[old[i].Key] {
				old[i].Key = now[i].Key
			}
		}
	}
	oldTerms, terms := old.Required.NodeSelectorTerms, now.Required.NodeSelectorTerms
	for i := range min(len(oldTerms), len(terms)) {
		replaceNames(oldTerms[i].MatchExpressions, terms[i].MatchExpressions)
		replaceNames(oldTerms[i].MatchFields, terms[i].MatchFields)
	}
	return old
}

// validateAttributesClassChange allows changing the class of a volume or claim, but not removing
// it.
func validateAttributesClassChange(fld validate.Field, now, before *string, enabled bool) {
	const name = "volumeAttributesClassName"
	switch {
	case ptr.Equal(now, before):
	case !enabled:
		fld.Forbidden(name, "update is forbidden when the VolumeAttributesClass feature gate is disabled")
	case before != nil && now == nil:
		fld.Forbidden(name, "update from non-nil value to nil is forbidden")
	case before != nil && *before != "" && *now == "":
		fld.Forbidden(name, "update from non-empty value to an empty value is forbidden")
	}
}

// volumeWarnings returns the warnings about deprecated annotations, labels and types.
func volumeWarnings(v *corev1.PersistentVolume) (texts []string) {
	for _, d := range []struct{ key, msg string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, ok := v.Annotations[d.key]; ok {
			texts = append(texts, fmt.Sprintf("%s: %s", field.NewPath("metadata", "annotations").Key(d.key), d.msg))
		}
	}
	s, spec := &v.Spec, field.NewPath("spec")
	if s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		texts = append(
			texts,
			fmt.Sprintf(
				"%s: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
				spec.Child("persistentVolumeReclaimPolicy")),
		)
	}
	if s.NodeAffinity != nil && s.NodeAffinity.Required != nil {
		texts = append(
			texts,
			podspec.NodeTermWarnings(
				spec.Child("nodeAffinity", "required", "nodeSelectorTerms"),
				s.NodeAffinity.Required.NodeSelectorTerms,
			)...)
	}
	return append(texts, volume.Warnings(spec, &s.PersistentVolumeSource)...)
}

// prepareVolumeStatus records the time of a phase change, unless the client sets it, and keeps the
// recorded time otherwise.
func prepareVolumeStatus(volume, old *corev1.PersistentVolume) {
	volume.Spec = old.Spec
	sentTime := volume.Status.LastPhaseTransitionTime
	if volume.Status.Phase == old.Status.Phase {
		if sentTime == nil {
			volume.Status.LastPhaseTransitionTime = old.Status.LastPhaseTransitionTime
		}
		return
	}
	if sentTime == nil || sentTime.Equal(old.Status.LastPhaseTransitionTime) {
		now := metav1.Now()
		volume.Status.LastPhaseTransitionTime = &now
	}
}

func volumeColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(corev1.PersistentVolumeSpec{}, name) }
	stat := func(name string) string { return columns.Doc(corev1.PersistentVolumeStatus{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Text("Capacity", spec("capacity"), func(volume *corev1.PersistentVolume) string { return storageText(volume.Spec.Capacity) }),
		columns.Text(
			"Access Modes",
			spec("accessModes"),
			func(volume *corev1.PersistentVolume) string { return accessModes(volume.Spec.AccessModes) },
		),
		columns.Text("Reclaim Policy", spec("persistentVolumeReclaimPolicy"), func(volume *corev1.PersistentVolume) string {
			return string(volume.Spec.PersistentVolumeReclaimPolicy)
		}),
		columns.Text("Status", stat("phase"), func(volume *corev1.PersistentVolume) string {
			return phaseOrTerminating(volume, string(volume.Status.Phase))
		}),
		columns.Text("Claim", spec("claimRef"), func(volume *corev1.PersistentVolume) string {
			if volume.Spec.ClaimRef == nil {
				return ""
			}
			return volume.Spec.ClaimRef.Namespace + "/" + volume.Spec.ClaimRef.Name
		}),
		columns.Text("StorageClass", "StorageClass of the pv", func(volume *corev1.PersistentVolume) string {
			return storageClass(volume, volume.Spec.StorageClassName)
		}),
		columns.Text("VolumeAttributesClass", "VolumeAttributesClass of the pv", func(volume *corev1.PersistentVolume) string {
			return textOrUnset(volume.Spec.VolumeAttributesClassName)
		}),
		columns.Text("Reason", stat("reason"), func(volume *corev1.PersistentVolume) string { return volume.Status.Reason }),
		columns.Age(),
		columns.WideText(
			"VolumeMode",
			spec("volumeMode"),
			func(volume *corev1.PersistentVolume) string { return textOrUnset(volume.Spec.VolumeMode) },
		),
	}
}

// storageText returns the amount of storage in a list.
func storageText(l corev1.ResourceList) string {
	q := l[corev1.ResourceStorage]
	return q.String()
}

// accessModes returns the short names of the distinct modes in a fixed order.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	has := map[corev1.PersistentVolumeAccessMode]bool{}
	for _, m := range modes {
		has[m] = true
	}
	var names []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		name string
	}{
		{corev1.ReadWriteOnce, "RWO"},
		{corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if has[m.mode] {
			names = append(names, m.name)
		}
	}
	return strings.Join(names, ",")
}

// storageClass returns the class in the beta annotation, which takes precedence over the field.
func storageClass(o metav1.Object, class string) string {
	if c, ok := o.GetAnnotations()[corev1.BetaStorageClassAnnotation]; ok {
		return c
	}
	return class
}

// phaseOrTerminating returns the phase, or "Terminating" if the object is being deleted.
func phaseOrTerminating(o metav1.Object, phase string) string {
	if o.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return phase
}

// textOrUnset returns the text, or "<unset>" for nil.
func textOrUnset[S ~string](s *S) string {
	if s == nil {
		return columns.Unset
	}
	return string(*s)
}

package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
)

func persistentVolumes() *registry.Kind {
	return &registry.Kind{
		Version: version, Resource: "persistentvolumes", Singular: "persistentvolume", Kind: "PersistentVolume",
		ShortNames:    []string{"pv"},
		New:           declare.New[corev1.PersistentVolume],
		NewList:       declare.New[corev1.PersistentVolumeList],
		Stored:        registry.Stored{Prefix: "persistentvolumes"},
		Default:       declare.Do(defaultVolume),
		ReturnDeleted: true,
		PrepareCreate: declare.Do(func(v *corev1.PersistentVolume) {
			now := metav1.Now()
			v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
		}),
		Columns: volumeColumns(),
		Subresources: []registry.Subresource{
			declare.View("status", "PersistentVolume", declare.Change(prepareVolumeStatus)),
		},
	}
}

func defaultVolume(v *corev1.PersistentVolume) {
	declare.Fill(&v.Status.Phase, corev1.VolumePending)
	declare.Fill(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	declare.FillPtr(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	podspec.Round(v.Spec.Capacity)
	podspec.HostPath(v.Spec.HostPath)
	podspec.AzureDisk(v.Spec.AzureDisk)
	if s := v.Spec.ISCSI; s != nil {
		podspec.ISCSI(&s.ISCSIInterface)
	}
	if s := v.Spec.RBD; s != nil {
		podspec.RBD(&s.RBDPool, &s.RadosUser, &s.Keyring)
	}
	if s := v.Spec.ScaleIO; s != nil {
		podspec.ScaleIO(&s.StorageMode, &s.FSType)
	}
}

// prepareVolumeStatus notes when the phase changed, unless the client says so
// itself.
func prepareVolumeStatus(v, old *corev1.PersistentVolume) {
	v.Spec = old.Spec
	if v.Status.Phase == old.Status.Phase {
		return
	}
	said := v.Status.LastPhaseTransitionTime
	if said == nil || said.Equal(old.Status.LastPhaseTransitionTime) {
		now := metav1.Now()
		v.Status.LastPhaseTransitionTime = &now
	}
}

func volumeColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(corev1.PersistentVolumeSpec{}, name) }
	stat := func(name string) string { return columns.Doc(corev1.PersistentVolumeStatus{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Text("Capacity", spec("capacity"), func(v *corev1.PersistentVolume) string { return storageText(v.Spec.Capacity) }),
		columns.Text("Access Modes", spec("accessModes"), func(v *corev1.PersistentVolume) string { return accessModes(v.Spec.AccessModes) }),
		columns.Text("Reclaim Policy", spec("persistentVolumeReclaimPolicy"), func(v *corev1.PersistentVolume) string {
			return string(v.Spec.PersistentVolumeReclaimPolicy)
		}),
		columns.Text("Status", stat("phase"), func(v *corev1.PersistentVolume) string {
			return phaseOrTerminating(v, string(v.Status.Phase))
		}),
		columns.Text("Claim", spec("claimRef"), func(v *corev1.PersistentVolume) string {
			if v.Spec.ClaimRef == nil {
				return ""
			}
			return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
		}),
		columns.Text("StorageClass", "StorageClass of the pv", func(v *corev1.PersistentVolume) string {
			return storageClass(v, v.Spec.StorageClassName)
		}),
		columns.Text("VolumeAttributesClass", "VolumeAttributesClass of the pv", func(v *corev1.PersistentVolume) string {
			return orUnset(v.Spec.VolumeAttributesClassName)
		}),
		columns.Text("Reason", stat("reason"), func(v *corev1.PersistentVolume) string { return v.Status.Reason }),
		columns.Age(),
		columns.WideText("VolumeMode", spec("volumeMode"), func(v *corev1.PersistentVolume) string { return orUnset(v.Spec.VolumeMode) }),
	}
}

func storageText(l corev1.ResourceList) string {
	q := l[corev1.ResourceStorage]
	return q.String()
}

// accessModes has each mode once, by its short name, in a fixed order.
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

// storageClass prefers the annotation that came before the field.
func storageClass(o metav1.Object, class string) string {
	if c, ok := o.GetAnnotations()[corev1.BetaStorageClassAnnotation]; ok {
		return c
	}
	return class
}

func phaseOrTerminating(o metav1.Object, phase string) string {
	if o.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return phase
}

func orUnset[S ~string](s *S) string {
	if s == nil {
		return columns.Unset
	}
	return string(*s)
}

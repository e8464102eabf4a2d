package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
	"binnacle/services/apiserver/internal/registry/valuediff"
)

// claimGates holds the feature gates of fields in claims.
type claimGates struct {
	otherNamespaces   bool // CrossNamespaceVolumeDataSource
	attributesClasses bool // VolumeAttributesClass
}

// drop clears the fields of disabled gates, and a data source of an unsupported kind, unless the
// stored claim has them.
func (g claimGates) drop(spec, old *corev1.PersistentVolumeClaimSpec) {
	ref := spec.DataSourceRef
	namesNamespace := ref != nil && ref.Namespace != nil && *ref.Namespace != ""
	if !g.otherNamespaces && namesNamespace && (old == nil || old.DataSourceRef == nil) {
		spec.DataSourceRef = nil
	}
	if !g.attributesClasses && (old == nil || old.VolumeAttributesClassName == nil) {
		spec.VolumeAttributesClassName = nil
	}
	// A source of another kind is dropped silently only without dataSourceRef. With it, validation
	// reports an error.
	inUse := old != nil && (old.DataSource != nil || old.DataSourceRef != nil)
	if spec.DataSource != nil && !isClaimOrSnapshot(spec.DataSource) && spec.DataSourceRef == nil && !inUse {
		spec.DataSource = nil
	}
}

// dropStatus is drop for the status of a claim.
func (g claimGates) dropStatus(status, old *corev1.PersistentVolumeClaimStatus) {
	if g.attributesClasses {
		return
	}
	if old.CurrentVolumeAttributesClassName == nil {
		status.CurrentVolumeAttributesClassName = nil
	}
	if old.ModifyVolumeStatus == nil {
		status.ModifyVolumeStatus = nil
	}
}

// isClaimOrSnapshot reports whether a data source is a claim or a snapshot.
func isClaimOrSnapshot(r *corev1.TypedLocalObjectReference) bool {
	group := ""
	if r.APIGroup != nil {
		group = *r.APIGroup
	}
	return group == "" && r.Kind == "PersistentVolumeClaim" || group == "snapshot.storage.k8s.io" && r.Kind == "VolumeSnapshot"
}

// validateClaimChanges rejects changes of a claim's spec, with exceptions. The volume and a missing
// class can be set once. A bound claim may request more storage, or less if the request still exceeds
// the capacity.
func validateClaimChanges(fld validate.Field, claim, old *corev1.PersistentVolumeClaim) {
	// Reset the fields that may change in copies of both specs, which must then be equal.
	now, was := claim.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = now.VolumeName
	}
	const annotation = corev1.BetaStorageClassAnnotation
	oldClass, hadAnnotation := old.Annotations[annotation]
	if hadAnnotation && was.StorageClassName == nil && now.StorageClassName != nil && *now.StorageClassName == oldClass &&
		keepsOrDropsClass(claim, oldClass) {
		now.StorageClassName = nil
	} else {
		if class := claim.Annotations[annotation]; class != oldClass {
			fld.Child("metadata", "annotations").CheckImmutable(annotation, class, oldClass)
		}
		if !hadAnnotation && was.StorageClassName == nil {
			now.StorageClassName = nil
		}
	}
	if claim.Status.Phase == corev1.ClaimBound {
		if now.Resources.Requests != nil {
			now.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		if now.VolumeAttributesClassName != nil {
			now.VolumeAttributesClassName = was.VolumeAttributesClassName
		}
	}
	if !validate.SemanticEqual(now, was) {
		fld.Forbidden("spec",
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+
				valuediff.Text(was, now))
	}

	request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	oldRequest := old.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity := old.Status.Capacity[corev1.ResourceStorage]
	fld.Child("spec", "resources", "requests").ForbidSet("storage", request.Cmp(oldRequest) < 0 && request.Cmp(capacity) <= 0,
		"field can not be less than status.capacity")
	fld.CheckImmutable("volumeMode", claim.Spec.VolumeMode, old.Spec.VolumeMode)
}

// keepsOrDropsClass reports whether the class annotation of a claim is unchanged or removed.
func keepsOrDropsClass(c *corev1.PersistentVolumeClaim, class string) bool {
	now, has := c.Annotations[corev1.BetaStorageClassAnnotation]
	return !has || now == class
}

// resizeStates are the states of a claim that is being resized.
var resizeStates = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizePending,
}

// validateClaimStatus validates the status of a claim. As in Kubernetes, some error paths differ
// from the names of the fields.
func validateClaimStatus(fld validate.Field, claim, _ *corev1.PersistentVolumeClaim) {
	fld.Child("Spec").RequireSet("accessModes", len(claim.Spec.AccessModes) > 0)
	status := fld.Child("status")
	validate.EachQuantity(
		status,
		"capacity",
		claim.Status.Capacity,
		func(fld validate.Field, _ corev1.ResourceName, quantity validate.Quantity) {
			fld.CheckBasicQuantity("", quantity)
		},
	)
	validate.EachKey(
		status,
		"",
		claim.Status.AllocatedResourceStatuses,
		func(_ validate.Field, name corev1.ResourceName, state corev1.ClaimResourceStatus) {
			validateClaimResource(status, "allocatedResourceStatus", name)
			if !slices.Contains(resizeStates, state) {
				status.Add(field.NotSupported(status.Child("allocatedResourceStatus").FieldPath(), name, resizeStates))
			}
		},
	)
	validate.EachQuantity(
		status,
		"allocatedResources",
		claim.Status.AllocatedResources,
		func(fld validate.Field, name corev1.ResourceName, quantity validate.Quantity) {
			before := fld.ErrorCount()
			validateClaimResource(status, "allocatedResources", name)
			if fld.ErrorCount() == before {
				fld.CheckBasicQuantity("", quantity)
			}
		},
	)
}

// validateClaimResource requires a resource that claims can request: storage, or one that is not
// native to Kubernetes.
func validateClaimResource(fld validate.Field, path string, name corev1.ResourceName) {
	before := fld.ErrorCount()
	fld.CheckText(path, string(name), validate.QualifiedName)
	if fld.ErrorCount() == before && name != corev1.ResourceStorage && podspec.IsNative(name) {
		fld.Add(field.NotSupported(fld.Child(path).FieldPath(), string(name), []corev1.ResourceName{corev1.ResourceStorage}))
	}
}

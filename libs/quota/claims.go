package quota

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// storageClassSeparator separates the name of a storage class from the limited resource, as in
// gold.storageclass.storage.k8s.io/requests.storage.
const storageClassSeparator = ".storageclass.storage.k8s.io/"

// claimEvaluator counts volume claims and their requests, in total and by storage class.
func claimEvaluator(gates Gates) *Evaluator {
	count := countName(schema.GroupResource{Resource: "persistentvolumeclaims"})
	evaluator := &Evaluator{
		MatchesResource: func(name corev1.ResourceName) bool {
			_, resourceName, byClass := strings.Cut(string(name), storageClassSeparator)
			if byClass {
				name = corev1.ResourceName(resourceName)
			}
			return name == count && !byClass || name == corev1.ResourcePersistentVolumeClaims ||
				name == corev1.ResourceRequestsStorage
		},
		Usage: func(obj runtime.Object) (Amounts, error) {
			claim, err := claimOf(obj)
			if err != nil {
				return nil, err
			}
			used := Amounts{count: OneQuantity()}
			charge := func(name corev1.ResourceName, q resource.Quantity) {
				used[name] = q
				if class := storageClass(claim); class != "" {
					used[corev1.ResourceName(class+storageClassSeparator)+name] = q.DeepCopy()
				}
			}
			charge(corev1.ResourcePersistentVolumeClaims, OneQuantity())
			if q, ok := requestedStorage(claim); ok {
				charge(corev1.ResourceRequestsStorage, q)
			}
			return used, nil
		},
	}
	if gates.AttributesClasses {
		evaluator.InScope = claimInScope
	}
	return evaluator
}

// storageClass returns the name of the storage class that a claim requests, or "". The beta
// annotation precedes the field, as in Kubernetes.
func storageClass(claim *corev1.PersistentVolumeClaim) string {
	if class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

func claimOf(obj runtime.Object) (*corev1.PersistentVolumeClaim, error) {
	if c, ok := obj.(*corev1.PersistentVolumeClaim); ok {
		return c, nil
	}
	return nil, fmt.Errorf("got %T, want a PersistentVolumeClaim", obj)
}

// requestedStorage returns the requested storage of a claim, or the allocated storage if that is
// more, in whole bytes. It returns false if the claim requests no storage.
func requestedStorage(claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	quantity, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if allocated, hasAllocated := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && hasAllocated &&
		allocated.Cmp(quantity) > 0 {
		quantity = allocated
	}
	quantity = quantity.DeepCopy()
	quantity.RoundUp(0)
	return quantity, ok
}

// claimInScope reports whether a claim is in a scope of volume attributes classes. The classes of a
// claim are the requested, the current and the target one.
func claimInScope(requirement Requirement, obj runtime.Object) (bool, error) {
	claim, err := claimOf(obj)
	if err != nil || requirement.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, err
	}
	var classes []string
	for _, class := range []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName} {
		if class != nil && *class != "" {
			classes = append(classes, *class)
		}
	}
	if m := claim.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		classes = append(classes, m.TargetVolumeAttributesClassName)
	}
	return selectsAny(requirement, classes)
}

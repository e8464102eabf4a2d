package quota

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ofStorageClass separates the name of a storage class from the limited resource.
const ofStorageClass = ".storageclass.storage.k8s.io/"

// claimEvaluator counts volume claims and their requests, in total and by storage class.
func claimEvaluator(g Gates) *Evaluator {
	count := countName(schema.GroupResource{Resource: "persistentvolumeclaims"})
	e := &Evaluator{
		Counts: func(name corev1.ResourceName) bool {
			_, what, byClass := strings.Cut(string(name), ofStorageClass)
			if byClass {
				name = corev1.ResourceName(what)
			}
			return name == count && !byClass || name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
		},
		Usage: func(obj runtime.Object) (Amounts, error) {
			c, err := claimOf(obj)
			if err != nil {
				return nil, err
			}
			used := Amounts{count: One()}
			charge := func(name corev1.ResourceName, q resource.Quantity) {
				used[name] = q
				if class := storageClass(c); class != "" {
					used[corev1.ResourceName(class+ofStorageClass)+name] = q.DeepCopy()
				}
			}
			charge(corev1.ResourcePersistentVolumeClaims, One())
			if q, ok := storage(c); ok {
				charge(corev1.ResourceRequestsStorage, q)
			}
			return used, nil
		},
	}
	if g.AttributesClasses {
		e.InScope = claimInScope
	}
	return e
}

// storageClass returns the name of the storage class that a claim requests, or "". The beta
// annotation precedes the field, as in Kubernetes.
func storageClass(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

func claimOf(obj runtime.Object) (*corev1.PersistentVolumeClaim, error) {
	if c, ok := obj.(*corev1.PersistentVolumeClaim); ok {
		return c, nil
	}
	return nil, fmt.Errorf("a claim of a volume is a %T", obj)
}

// storage returns the requested storage of a claim, or the allocated one if that is more, in whole
// bytes.
func storage(c *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	q, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if given, has := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && has && given.Cmp(q) > 0 {
		q = given
	}
	q = q.DeepCopy()
	q.RoundUp(0)
	return q, ok
}

// claimInScope supports the scope of volume attributes classes: the requested, the current and the
// target class of a claim.
func claimInScope(s Requirement, obj runtime.Object) (bool, error) {
	c, err := claimOf(obj)
	if err != nil || s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, err
	}
	var classes []string
	for _, class := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if class != nil && *class != "" {
			classes = append(classes, *class)
		}
	}
	if m := c.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		classes = append(classes, m.TargetVolumeAttributesClassName)
	}
	return selects(s, classes)
}

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Round rounds quantities up to thousandths, the smallest supported unit.
func Round(l corev1.ResourceList) {
	for name, q := range l {
		if !q.RoundUp(resource.Milli) {
			l[name] = q
		}
	}
}

// Package flowcontrol declares the kinds of the group flowcontrol.apiserver.k8s.io, v1, one file per
// kind. It keeps no state; Kinds makes fresh values for the catalog of built-in
// kinds.
package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = flowcontrolv1.GroupName
	version = "v1"
)

// Kinds of the group, in the order of their resources.
func Kinds() []*registry.Kind {
	return []*registry.Kind{flowSchemas(), priorityLevelConfigurations()}
}

// keepAllMeta takes all metadata over from the live object, except who manages
// which field.
func keepAllMeta(m, old *metav1.ObjectMeta) {
	managed := m.ManagedFields
	old.DeepCopyInto(m)
	m.ManagedFields = managed
}

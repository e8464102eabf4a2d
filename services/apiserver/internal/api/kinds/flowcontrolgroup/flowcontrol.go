// Package flowcontrolgroup declares the kinds of the group flowcontrol.apiserver.k8s.io, v1, with one
// file for each kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package flowcontrolgroup

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	group   = flowcontrolv1.GroupName
	version = "v1"
	beta3   = "v1beta3"
)

// Kinds returns the kinds of the group, ordered by resource. v1beta3 was removed in 1.32: it is
// served for older emulated versions.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		flowSchemas(),
		priorityLevelConfigurations(),
		declare.AdditionalVersion(beta3, flowSchemas()),
		declare.AdditionalVersion(beta3, betaPriorityLevelConfigurations()),
	}
}

// keepAllMeta copies all metadata from the live object, except managedFields.
func keepAllMeta(m, old *metav1.ObjectMeta) {
	managed := m.ManagedFields
	old.DeepCopyInto(m)
	m.ManagedFields = managed
}

package definition

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Terminate marks a definition whose deletion starts. Its objects are deleted first.
func Terminate(d *v1.CustomResourceDefinition, now metav1.Time) {
	if !slices.Contains(d.Finalizers, v1.CustomResourceCleanupFinalizer) {
		d.Finalizers = append(d.Finalizers, v1.CustomResourceCleanupFinalizer)
	}
	SetCondition(&d.Status, *condition(v1.Terminating, true, "InstanceDeletionPending",
		"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"), now)
}

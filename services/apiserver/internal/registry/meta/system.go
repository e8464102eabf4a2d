package meta

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/registry"
)

// SetServerFields gives a new object the metadata that only the server sets,
// whatever the client sent there. Generation and finalizers are not among
// them.
func SetServerFields(obj registry.Object, uid types.UID, created metav1.Time) {
	obj.SetUID(uid)
	obj.SetCreationTimestamp(created)
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// KeepServerFields takes over from old the metadata that an update cannot
// change. A uid that the client sent stays, so that a wrong one is refused.
func KeepServerFields(obj, old registry.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if t := old.GetDeletionTimestamp(); t != nil {
		obj.SetDeletionTimestamp(t)
	}
	if s := old.GetDeletionGracePeriodSeconds(); s != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(s)
	}
	obj.SetSelfLink("")
}

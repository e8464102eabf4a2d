package meta

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/registry"
)

// SetServerFields sets the metadata of a new object that only the server sets, regardless of the
// client's values. It does not set generation and finalizers.
func SetServerFields(obj registry.Object, uid types.UID, created metav1.Time) {
	obj.SetUID(uid)
	obj.SetCreationTimestamp(created)
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// KeepServerFields copies from old the metadata that an update cannot change. It keeps a uid that
// the client sent, so that a wrong one is rejected.
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

package meta

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// PrepareUnstored prepares the metadata of an object that a client sends to an operation, and that
// is not stored. It clears the fields that only the server sets, and sets the namespace to that of
// the path, which is empty for cluster-scoped kinds. It returns an error if the object names
// another namespace.
func PrepareUnstored(obj registry.Object, namespace string) error {
	SetServerFields(obj, "", metav1.Time{})
	return SetNamespace(obj, namespace)
}

// SetNamespace sets the namespace of an object to the namespace of the path, which is empty for
// cluster-scoped kinds. It returns an error if the object names another namespace.
func SetNamespace(obj registry.Object, namespace string) error {
	if named := obj.GetNamespace(); named != "" && namespace != "" && named != namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetNamespace(namespace)
	return nil
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

package storageversions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// nameOf returns the name of the StorageVersion object of a resource.
func nameOf(r schema.GroupResource) string { return cmp.Or(r.Group, "core") + "." + r.Resource }

// collection refers to all StorageVersion objects.
func collection() internalclient.Ref {
	return internalclient.Collection(apiserverinternalv1alpha1.GroupName, "v1alpha1", "storageversions", "")
}

// withdraw removes records of this replica for resources that it no longer serves. Otherwise other
// replicas would proxy requests for them to this one.
func (m *Manager) withdraw(ctx context.Context) error {
	var errs []error
	for _, r := range m.unserved {
		if err := m.withdrawOne(ctx, nameOf(r)); err != nil {
			errs = append(errs, fmt.Errorf("failed to withdraw the storage version of %v: %w", r, err))
		}
	}
	return errors.Join(errs...)
}

// withdrawOne removes the record of this replica from the StorageVersion object of a name. If no
// record is left, it deletes the object.
func (m *Manager) withdrawOne(ctx context.Context, name string) (err error) {
	ref := collection().Named(name)
	if err := m.api.GetCached(ctx, ref, nil); apierrors.IsNotFound(err) {
		return nil
	}
	for range maxAttempts {
		var storageVersion apiserverinternalv1alpha1.StorageVersion
		if err = m.api.Get(ctx, ref, &storageVersion); err != nil {
			break
		}
		before := storageVersion.Status.DeepCopy()
		isOwn := func(o apiserverinternalv1alpha1.ServerStorageVersion) bool { return o.APIServerID == m.identity }
		storageVersion.Status.StorageVersions = slices.DeleteFunc(storageVersion.Status.StorageVersions, isOwn)
		switch {
		case len(storageVersion.Status.StorageVersions) == len(before.StorageVersions):
			return nil
		case len(storageVersion.Status.StorageVersions) == 0:
			err = m.api.Delete(ctx, ref, &metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &storageVersion.UID, ResourceVersion: &storageVersion.ResourceVersion},
			})
		default:
			m.setCommonVersion(&storageVersion, before)
			err = m.api.Update(ctx, ref.Subresource("status"), &storageVersion, nil)
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

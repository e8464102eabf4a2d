// Package storagegroup declares the kinds of the group storage.k8s.io, v1, with one file for each
// kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package storagegroup

import (
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	group   = storagev1.GroupName
	version = "v1"
	beta    = "v1beta1"
)

// Kinds returns the kinds of the group, ordered by resource.
func Kinds(s registry.Settings) []*registry.Kind {
	mutableCount := s.Enabled(features.MutableCSINodeAllocatableCount)
	return []*registry.Kind{
		csiDrivers(mutableCount),
		csiNodes(mutableCount),
		csiStorageCapacities(),
		storageClasses(),
		volumeAttachments(mutableCount),
		volumeAttributesClasses(),
		declare.AdditionalVersion("v1alpha1", volumeAttributesClasses()),
	}
}

// Package storagegroup declares the kinds of the group storage.k8s.io, v1, one file per
// kind. It keeps no state; Kinds makes fresh values for the catalog of built-in
// kinds.
package storagegroup

import (
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	// messageGroup is what messages call the group's own types by.
	messageGroup = "storage"

	group   = storagev1.GroupName
	version = "v1"
	beta    = "v1beta1"
)

// Kinds of the group, in the order of their resources.
func Kinds(s registry.Settings) []*registry.Kind {
	counts := s.On(features.MutableCSINodeAllocatableCount)
	return []*registry.Kind{
		csiDrivers(counts),
		csiNodes(counts),
		csiStorageCapacities(),
		storageClasses(),
		volumeAttachments(counts),
		volumeAttributesClasses(),
		declare.Also("v1alpha1", volumeAttributesClasses()),
	}
}

// isTrue reads a flag that is absent in the default's favour.
func isTrue(b *bool, absent bool) bool {
	if b == nil {
		return absent
	}
	return *b
}

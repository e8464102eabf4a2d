package storagegroup

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func storageClasses() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "storageclasses", Singular: "storageclass", Kind: "StorageClass",
		ShortNames:    []string{"sc"},
		New:           declare.New[storagev1.StorageClass],
		NewList:       declare.New[storagev1.StorageClassList],
		Stored:        registry.Stored{Prefix: "storageclasses"},
		Default:       declare.Do(defaultStorageClass),
		ReturnDeleted: true,
		Columns:       storageClassColumns(),
	}
}

func defaultStorageClass(c *storagev1.StorageClass) {
	declare.FillPtr(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	declare.FillPtr(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

func storageClassColumns() []registry.Column {
	doc := func(name string) string { return columns.Doc(storagev1.StorageClass{}, name) }
	name := columns.Name()
	name.Cell = func(o registry.Object) any {
		if isDefaultClass(o) {
			return o.GetName() + " (default)"
		}
		return o.GetName()
	}
	return []registry.Column{
		name,
		columns.Text("Provisioner", doc("provisioner"), func(c *storagev1.StorageClass) string { return c.Provisioner }),
		columns.Text("ReclaimPolicy", doc("reclaimPolicy"), func(c *storagev1.StorageClass) string {
			if c.ReclaimPolicy == nil {
				return string(corev1.PersistentVolumeReclaimDelete)
			}
			return string(*c.ReclaimPolicy)
		}),
		columns.Text("VolumeBindingMode", doc("volumeBindingMode"), func(c *storagev1.StorageClass) string {
			if c.VolumeBindingMode == nil {
				return string(storagev1.VolumeBindingImmediate)
			}
			return string(*c.VolumeBindingMode)
		}),
		// A boolean in a column that says it is a string, as clients know it.
		columns.Of("AllowVolumeExpansion", columns.String, "", doc("allowVolumeExpansion"), 0, func(c *storagev1.StorageClass) any {
			return isTrue(c.AllowVolumeExpansion, false)
		}),
		columns.Age(),
	}
}

// isDefaultClass tells the class of claims that name none.
func isDefaultClass(o registry.Object) bool {
	for _, key := range []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"} {
		if o.GetAnnotations()[key] == "true" {
			return true
		}
	}
	return false
}

package storagegroup

import (
	"maps"

	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

// volumeAttributesClasses are only served in beta, and so off by default.
func volumeAttributesClasses() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: beta, Resource: "volumeattributesclasses", Singular: "volumeattributesclass", Kind: "VolumeAttributesClass",
		ShortNames: []string{"vac"},
		New:        declare.New[storagev1beta1.VolumeAttributesClass],
		NewList:    declare.New[storagev1beta1.VolumeAttributesClassList],
		Stored:     registry.Stored{Prefix: "volumeattributesclasses"},
		Validate: declare.Get(func(c *storagev1beta1.VolumeAttributesClass) field.ErrorList {
			if c.DriverName == "" {
				return field.ErrorList{field.Required(field.NewPath("driverName"), "")}
			}
			return nil
		}),
		ValidateUpdate: declare.GetChange(func(c, old *storagev1beta1.VolumeAttributesClass) (errs field.ErrorList) {
			if c.DriverName != old.DriverName {
				errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
			}
			if !maps.Equal(c.Parameters, old.Parameters) {
				errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
			}
			return errs
		}),
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("DriverName", columns.Doc(storagev1beta1.VolumeAttributesClass{}, "driverName"), func(c *storagev1beta1.VolumeAttributesClass) string { return c.DriverName }),
			columns.Age(),
		},
	}
}

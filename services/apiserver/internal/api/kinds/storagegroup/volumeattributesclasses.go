package storagegroup

import (
	"strings"

	storagev1beta1 "k8s.io/api/storage/v1beta1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// volumeAttributesClasses declares the cluster-scoped kind VolumeAttributesClass. It has no stable
// version, so it is disabled by default.
func volumeAttributesClasses() *registry.Kind {
	return declare.Kind[storagev1beta1.VolumeAttributesClass, storagev1beta1.VolumeAttributesClassList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: beta, Resource: "volumeattributesclasses", Kind: "VolumeAttributesClass",
			ShortNames: []string{"vac"},
		},
		Delete: registry.Delete{ReturnObject: true},
		Create: registry.Create{Validate: declare.AdaptValidation(validateAttributesClass)},
		Update: registry.Update{
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *storagev1beta1.VolumeAttributesClass) {
				fld.ForbidSet("driverName", c.DriverName != old.DriverName, "updates to driverName are forbidden.")
				fld.ForbidSet("parameters", !validate.SemanticEqual(c.Parameters, old.Parameters), "updates to parameters are forbidden.")
				validateAttributesClass(fld, c)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text(
				"DriverName",
				columns.Doc(storagev1beta1.VolumeAttributesClass{}, "driverName"),
				func(c *storagev1beta1.VolumeAttributesClass) string { return c.DriverName },
			),
			columns.Age(),
		}},
	})
}

func validateAttributesClass(fld validate.Field, c *storagev1beta1.VolumeAttributesClass) {
	fld.CheckRequiredText("driverName", strings.ToLower(c.DriverName), validate.QualifiedName)
	fld.RequireSetWithDetail("parameters", len(c.Parameters) > 0, "must contain at least one key/value pair")
	validateParameters(fld, "parameters", c.Parameters)
}

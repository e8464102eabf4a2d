package storagegroup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// storageClasses declares the cluster-scoped kind StorageClass.
func storageClasses() *registry.Kind {
	return declare.Kind[storagev1.StorageClass, storagev1.StorageClassList](&registry.Kind{
		Names:          registry.Names{Group: group, Version: version, Resource: "storageclasses", Kind: "StorageClass", ShortNames: []string{"sc"}},
		Default:        declare.Adapt(defaultStorageClass),
		DefaultedRules: transcode.Rules(transcode.FieldsSet[storagev1.StorageClass]("reclaimPolicy", "volumeBindingMode")),
		Create: registry.Create{
			Validate: declare.AdaptValidation(validateStorageClass),
			Warnings: declare.AdaptResult(storageClassWarnings),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, storageClass, old *storagev1.StorageClass) {
				validateStorageClass(fld, storageClass)
				fld.ForbidSet("parameters", !validate.SemanticEqual(storageClass.Parameters, old.Parameters), "updates to parameters are forbidden.")
				fld.ForbidSet("provisioner", storageClass.Provisioner != old.Provisioner, "updates to provisioner are forbidden.")
				fld.ForbidSet("reclaimPolicy", !validate.SemanticEqual(storageClass.ReclaimPolicy, old.ReclaimPolicy),
					"updates to reclaimPolicy are forbidden.")
				fld.CheckImmutable("volumeBindingMode", storageClass.VolumeBindingMode, old.VolumeBindingMode)
			}),
		},
		Delete:       registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: storageClassColumns()},
	})
}

func defaultStorageClass(c *storagev1.StorageClass) {
	declare.SetDefaultPtr(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	declare.SetDefaultPtr(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

// Limits of the parameters of a class.
const (
	maxParameters     = 512
	maxParameterBytes = 256 * 1024 // of all keys and values
)

// validateStorageClass validates a new or changed class.
func validateStorageClass(fld validate.Field, storageClass *storagev1.StorageClass) {
	fld.CheckRequiredText("provisioner", strings.ToLower(storageClass.Provisioner), validate.QualifiedName)
	validateParameters(fld, "parameters", storageClass.Parameters)
	if p := storageClass.ReclaimPolicy; p != nil && *p != "" {
		validate.OneOf(fld, "reclaimPolicy", *p, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
	fld.RequireSet("volumeBindingMode", storageClass.VolumeBindingMode != nil)
	validate.OptionalOneOf(fld, "volumeBindingMode", storageClass.VolumeBindingMode, storagev1.VolumeBindingImmediate,
		storagev1.VolumeBindingWaitForFirstConsumer)
	validateTopologies(fld, storageClass.AllowedTopologies)
}

// validateParameters validates the parameters of a driver.
func validateParameters(fld validate.Field, name string, parameters map[string]string) {
	if len(parameters) > maxParameters {
		fld.Add(field.TooLong(fld.Child(name).FieldPath(), "Provisioner Parameters exceeded max allowed", maxParameters))
		return
	}
	size := 0
	for key, value := range parameters {
		if key == "" {
			fld.Invalid(name, key, "field can not be empty.")
		}
		size += len(key) + len(value)
	}
	if size > maxParameterBytes {
		fld.TooLong(name, maxParameterBytes)
	}
}

// maxDuplicateErrors is the maximum number of errors for duplicate topologies. It is more than a
// response can contain.
const maxDuplicateErrors = 2000

// validateTopologies requires distinct topologies. The order of keys and values does not matter. As
// in Kubernetes, a duplicate is reported once for each earlier equal topology, and an empty topology
// counts as equal to every term.
func validateTopologies(fld validate.Field, terms []corev1.TopologySelectorTerm) {
	seen, errorsLeft := map[string]int{"": len(terms)}, maxDuplicateErrors
	validate.Each(fld, "allowedTopologies", terms, func(fld validate.Field, term *corev1.TopologySelectorTerm) {
		valuesByKey := map[string][]string{}
		validate.Each(
			fld,
			"matchLabelExpressions",
			term.MatchLabelExpressions,
			func(fld validate.Field, requirement *corev1.TopologySelectorLabelRequirement) {
				fld.RequireSet("values", len(requirement.Values) > 0)
				values := validate.Set[string]{}
				validate.Each(
					fld,
					"values",
					requirement.Values,
					func(fld validate.Field, value *string) { validate.Unique(fld, "", *value, values) },
				)
				fld.CheckLabelKey("key", requirement.Key)
				if _, exists := valuesByKey[requirement.Key]; exists {
					fld.Duplicate("key", requirement.Key)
				}
				valuesByKey[requirement.Key] = slices.Sorted(maps.Keys(values))
			},
		)
		key := topologyKey(valuesByKey)
		errorCount := min(seen[key], errorsLeft)
		for range errorCount {
			fld.Duplicate("matchLabelExpressions", "")
		}
		errorsLeft -= errorCount
		seen[key]++
	})
}

// topologyKey returns equal texts for equal topologies, and "" for an empty one. The values of each
// key are sorted.
func topologyKey(valuesByKey map[string][]string) string {
	var builder strings.Builder
	for _, key := range slices.Sorted(maps.Keys(valuesByKey)) {
		fmt.Fprintf(&builder, "%q%q", key, valuesByKey[key])
	}
	return builder.String()
}

// storageClassWarnings returns warnings about deprecated node labels in the topologies.
func storageClassWarnings(c *storagev1.StorageClass) (texts []string) {
	terms := field.NewPath("allowedTopologies")
	for i, t := range c.AllowedTopologies {
		for j, r := range t.MatchLabelExpressions {
			if msg := podspec.DeprecatedLabel(r.Key); msg != "" {
				texts = append(texts, fmt.Sprintf("%s: %s", terms.Index(i).Child("matchLabelExpressions").Index(j).Child("key"), msg))
			}
		}
	}
	return texts
}

func storageClassColumns() []registry.Column {
	doc := func(name string) string { return columns.Doc(storagev1.StorageClass{}, name) }
	name := columns.Name()
	name.Cell = func(obj registry.Object) any {
		if isDefaultClass(obj) {
			return obj.GetName() + " (default)"
		}
		return obj.GetName()
	}
	return []registry.Column{
		name,
		columns.Text("Provisioner", doc("provisioner"), func(storageClass *storagev1.StorageClass) string { return storageClass.Provisioner }),
		columns.Text("ReclaimPolicy", doc("reclaimPolicy"), func(storageClass *storagev1.StorageClass) string {
			if storageClass.ReclaimPolicy == nil {
				return string(corev1.PersistentVolumeReclaimDelete)
			}
			return string(*storageClass.ReclaimPolicy)
		}),
		columns.Text("VolumeBindingMode", doc("volumeBindingMode"), func(storageClass *storagev1.StorageClass) string {
			if storageClass.VolumeBindingMode == nil {
				return string(storagev1.VolumeBindingImmediate)
			}
			return string(*storageClass.VolumeBindingMode)
		}),
		// A boolean in a column of type string, as in Kubernetes.
		columns.New("AllowVolumeExpansion", columns.String, "", doc("allowVolumeExpansion"), 0, func(storageClass *storagev1.StorageClass) any {
			return ptr.Deref(storageClass.AllowVolumeExpansion, false)
		}),
		columns.Age(),
	}
}

func isDefaultClass(o registry.Object) bool {
	for _, key := range []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"} {
		if o.GetAnnotations()[key] == "true" {
			return true
		}
	}
	return false
}

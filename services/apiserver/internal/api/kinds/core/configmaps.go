package core

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

const immutableMessage = "field is immutable when `immutable` is set"

// configMaps declares the namespaced kind ConfigMap.
func configMaps() *registry.Kind {
	return declare.Kind[corev1.ConfigMap, corev1.ConfigMapList](&registry.Kind{
		Names:  registry.Names{Version: version, Resource: "configmaps", Kind: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true},
		Create: registry.Create{Validate: declare.AdaptResult(validateConfigMap)},
		Update: registry.Update{
			Order:    registry.Order{registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			Validate: declare.AdaptUpdateResult(validateConfigMapUpdate),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.New("Data", columns.String, "", columns.Doc(corev1.ConfigMap{}, "data"), 0,
				func(c *corev1.ConfigMap) any { return int64(len(c.Data) + len(c.BinaryData)) }),
			columns.Age(),
		}},
	})
}

func validateConfigMap(configMap *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	data := field.NewPath("data")
	binaryData := field.NewPath("binaryData")
	for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
		errs = append(errs, validateDataKey(data, key)...)
		if _, double := configMap.BinaryData[key]; double {
			errs = append(errs, field.Invalid(data.Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(configMap.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(configMap.BinaryData)) {
		errs = append(errs, validateDataKey(binaryData, key)...)
		size += len(configMap.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		// An empty path stands for the whole object.
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateDataKey(path *field.Path, key string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(path.Key(key), key, msg))
	}
	return errs
}

func validateConfigMapUpdate(configMap, old *corev1.ConfigMap) field.ErrorList {
	errs := validateImmutable(configMap.Immutable, old.Immutable, []lockedField{
		{"data", !reflect.DeepEqual(configMap.Data, old.Data)},
		{"binaryData", !reflect.DeepEqual(configMap.BinaryData, old.BinaryData)},
	})
	return append(errs, validateConfigMap(configMap)...)
}

// lockedField is a field that cannot change once an object is immutable. As in Kubernetes, an empty
// map is not the same as none.
type lockedField struct {
	name    string
	changed bool
}

// validateImmutable rejects removal of the immutable mark, and changes of fields while it is set.
func validateImmutable(now, before *bool, fields []lockedField) field.ErrorList {
	if before == nil || !*before {
		return nil
	}
	var errs field.ErrorList
	if now == nil || !*now {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), immutableMessage))
	}
	for _, f := range fields {
		if f.changed {
			errs = append(errs, field.Forbidden(field.NewPath(f.name), immutableMessage))
		}
	}
	return errs
}

package crdinformer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// storePaths selects the parts of a stored definition that determine the key prefix of its objects
// and their selectable fields. DefinitionReader depends on the order.
var storePaths = jsontext.Compile(
	jsontext.Fields("spec", "group"),
	jsontext.Fields("spec", "names", "plural"),
	jsontext.Fields("status", "conditions"),
	jsontext.Fields("spec", "selectableFields"),
	jsontext.Fields("spec", "versions"),
)

// versionFields selects the list of selectable fields in a version.
var versionFields = jsontext.Compile(jsontext.Fields("selectableFields"))

// DefinitionReader returns a function that converts a stored definition to the configuration of the
// watch cache for its objects. The function returns false if the definition is not established or
// invalid, and if definitions may not define the resource (definable).
//
// All versions share the watch cache. Selectors match the selectable fields of all versions in the
// stored document; ignoreFields disables them.
func DefinitionReader(
	objectCodec *codec.Codec,
	root string,
	definable func(group, resource string) bool,
	ignoreFields bool,
) func(stored []byte) (watchcache.ResourceConfig, bool) {
	return func(stored []byte) (watchcache.ResourceConfig, bool) {
		parts, err := storePaths.Find(stored, nil)
		if err != nil {
			return watchcache.ResourceConfig{}, false
		}
		conditions, commonFields, versions := parts[2], parts[3], parts[4]
		group, hasGroup := jsontext.Text(parts[0])
		plural, hasPlural := jsontext.Text(parts[1])
		if !hasGroup || !hasPlural || !definable(group, plural) || !isEstablished(conditions) {
			return watchcache.ResourceConfig{}, false
		}
		if ignoreFields {
			return resourceConfig(objectCodec, root, group, plural, nil, nil), true
		}
		paths, err := selectablePaths(commonFields, versions)
		if err != nil {
			return watchcache.ResourceConfig{}, false
		}
		missing, err := missingValues(paths, versions)
		if err != nil {
			return watchcache.ResourceConfig{}, false
		}
		return resourceConfig(objectCodec, root, group, plural, paths, missing), true
	}
}

// resourceConfig returns the configuration of the watch cache for a custom resource. paths are the
// paths of its selectable fields, and missing their values in documents that omit them.
func resourceConfig(
	objectCodec *codec.Codec,
	root, group, plural string,
	paths []string,
	missing codec.MissingValues,
) watchcache.ResourceConfig {
	var fields []registry.SelectableField
	for _, p := range paths {
		fields = append(fields, registry.SelectableField{Label: p[1:], Path: p})
	}
	prefix := group + "/" + plural
	read := codec.DocumentAttributes(fields, missing)
	recent := &attributes.InternCache{}
	return watchcache.ResourceConfig{
		Name:    plural + "." + group,
		Prefix:  root + "/" + prefix + "/",
		Variant: variant(paths, missing),
		Attributes: func(_ string, value []byte) (attributes.Attributes, error) {
			stored, err := read(value)
			if err != nil {
				err = invalidValueError(objectCodec, group, plural, value, err)
			}
			return attributes.Attributes{
				Namespace: stored.Namespace,
				Name:      stored.Name,
				Labels:    attributes.SetFromPairsLike(recent, stored.Labels),
				Fields:    attributes.FieldsFromPairsLike(recent, stored.Fields),
			}, err
		},
	}
}

// variant returns a string that differs if the selectable fields of the same objects differ,
// because the definition has changed.
func variant(paths []string, missing codec.MissingValues) string {
	v := strings.Join(paths, " ")
	if len(missing) > 0 {
		text, _ := json.Marshal(missing) // cannot fail for strings; keys are sorted
		v += " " + string(text)
	}
	return v
}

// invalidValueError returns the error for a stored value that cannot be read. It decodes the value
// with a full codec, which has better errors. If that finds no error, it returns found. Creating
// the codec is expensive, so this runs only for invalid values.
func invalidValueError(c *codec.Codec, group, plural string, value []byte, found error) error {
	k, err := c.NewKindCodec(&registry.Kind{
		Names:    registry.Names{Group: group, Resource: plural},
		Stored:   registry.StorageForm{Prefix: group + "/" + plural, JSON: true},
		Document: &registry.Document{},
	})
	if err == nil {
		_, err = k.Attributes(value)
	}
	if err != nil {
		return err
	}
	return found
}

// conditionFields selects the type and the status of a condition.
var conditionFields = jsontext.Compile(jsontext.Fields("type"), jsontext.Fields("status"))

// isEstablished reports whether the condition Established is true in a list of conditions, as JSON.
// It scans the JSON without decoding it, because it runs for every change of a definition.
func isEstablished(conditions []byte) (found bool) {
	if conditions == nil {
		return false
	}
	var parts [][]byte
	err := jsontext.Elements(conditions, func(_ int, condition []byte) bool {
		var err error
		if parts, err = conditionFields.Find(condition, parts); err != nil {
			return false
		}
		name, _ := jsontext.Text(parts[0])
		value, _ := jsontext.Text(parts[1])
		found = name == string(apiextensionsv1.Established) && value == string(apiextensionsv1.ConditionTrue)
		return !found
	})
	return found && err == nil
}

// selectablePaths returns the paths of the selectable fields of all versions, sorted. common is the
// list of selectable fields of the definition, and versions its list of versions, both as JSON or
// nil.
func selectablePaths(common, versions []byte) ([]string, error) {
	paths := map[string]bool{}
	addPaths := func(list []byte) error {
		if list == nil {
			return nil
		}
		var all []apiextensionsv1.SelectableField
		if err := json.Unmarshal(list, &all); err != nil {
			return err
		}
		for _, f := range all {
			if !strings.HasPrefix(f.JSONPath, ".") {
				return fmt.Errorf("selectable field %q is not a path", f.JSONPath)
			}
			paths[f.JSONPath] = true
		}
		return nil
	}
	err := addPaths(common)
	if versions != nil && err == nil {
		var parts [][]byte
		syntaxErr := jsontext.Elements(versions, func(_ int, version []byte) bool {
			if parts, err = versionFields.Find(version, parts); err == nil {
				err = addPaths(parts[0])
			}
			return err == nil
		})
		if err == nil {
			err = syntaxErr
		}
	}
	return slices.Sorted(maps.Keys(paths)), err
}

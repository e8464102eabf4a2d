package schema

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	kjson "sigs.k8s.io/json"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// This file is the oracle of the differential tests: it implements normalization and validation on
// decoded trees in the plainest way. It uses the validation library of kube-openapi for keywords.

// decode returns the tree of a JSON text, with integers as int64.
func decode(data []byte) any {
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &value); err != nil {
		panic(err)
	}
	return value
}

// defaultOf returns the default of a schema, or nil.
func defaultOf(props *v1.JSONSchemaProps) any {
	if props == nil || props.Default == nil || len(props.Default.Raw) == 0 {
		return nil
	}
	return decode(props.Default.Raw)
}

// subSchema returns the schema of a field of an object, or nil.
func subSchema(props *v1.JSONSchemaProps, key string) *v1.JSONSchemaProps {
	if p, ok := props.Properties[key]; ok {
		return &p
	}
	if props.AdditionalProperties != nil {
		return props.AdditionalProperties.Schema
	}
	return nil
}

// itemSchema returns the schema of the items of a list, or nil.
func itemSchema(props *v1.JSONSchemaProps) *v1.JSONSchemaProps {
	if props == nil || props.Items == nil {
		return nil
	}
	return props.Items.Schema
}

// oracleDefault sets the defaults of a schema in a tree.
func oracleDefault(tree any, schemaProps *v1.JSONSchemaProps) {
	if schemaProps == nil {
		return
	}
	switch tree := tree.(type) {
	case map[string]any:
		for name, property := range schemaProps.Properties {
			if defaultValue := defaultOf(&property); defaultValue != nil {
				if value, ok := tree[name]; !ok || value == nil && !property.Nullable {
					tree[name] = defaultValue
				}
			}
		}
		for name := range tree {
			sub := subSchema(schemaProps, name)
			if sub != nil && tree[name] == nil && !sub.Nullable {
				tree[name] = defaultOf(sub)
			}
			oracleDefault(tree[name], sub)
		}
	case []any:
		items := itemSchema(schemaProps)
		for i := range tree {
			if items != nil && tree[i] == nil && !items.Nullable {
				tree[i] = defaultOf(items)
			}
			oracleDefault(tree[i], items)
		}
	}
}

// oracleNulls removes nulls that a schema does not allow from a tree.
func oracleNulls(tree any, schemaProps *v1.JSONSchemaProps) {
	switch tree := tree.(type) {
	case map[string]any:
		for key := range tree {
			var sub *v1.JSONSchemaProps
			if schemaProps != nil {
				sub = subSchema(schemaProps, key)
			}
			if sub != nil && tree[key] == nil && !sub.Nullable && defaultOf(sub) == nil {
				delete(tree, key)
				continue
			}
			oracleNulls(tree[key], sub)
		}
	case []any:
		for i := range tree {
			oracleNulls(tree[i], itemSchema(schemaProps))
		}
	}
}

// oraclePruner collects the paths of unknown fields.
type oraclePruner struct{ unknown []string }

// join appends a field name to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// prune removes unknown fields from a tree. keepUnknown is set if an outer schema allows unknown
// fields.
func (o *oraclePruner) prune(tree any, schemaProps *v1.JSONSchemaProps, path string, keepUnknown bool) {
	if !keepUnknown && schemaProps != nil && schemaProps.XPreserveUnknownFields != nil {
		keepUnknown = true
	}
	if keepUnknown && schemaProps == nil {
		return
	}
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			if path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, key) {
				continue
			}
			switch {
			case schemaProps == nil:
				o.unknown = append(o.unknown, join(path, key))
				delete(tree, key)
			case schemaProps.AdditionalProperties != nil || hasKey(schemaProps, key):
				o.prune(value, subSchema(schemaProps, key), join(path, key), false)
			case !keepUnknown:
				o.unknown = append(o.unknown, join(path, key))
				delete(tree, key)
			}
		}
	case []any:
		for i := range tree {
			o.prune(tree[i], itemSchema(schemaProps), path+"["+strconv.Itoa(i)+"]", keepUnknown)
		}
	}
}

// hasKey reports whether a schema has a property.
func hasKey(s *v1.JSONSchemaProps, k string) bool { _, ok := s.Properties[k]; return ok }

// oracleNormalize returns the normalized document and the paths of unknown fields.
func oracleNormalize(data []byte, schemaProps *v1.JSONSchemaProps) (any, []string) {
	value := decode(data)
	typeAndMetadata := map[string]any{}
	members := value.(map[string]any)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		if value, ok := members[name]; ok {
			typeAndMetadata[name] = value
			delete(members, name)
		}
	}
	// Defaults are pruned before they are applied, so they are not reported.
	var pruner oraclePruner
	before := runtime.DeepCopyJSONValue(value)
	pruner.prune(before, schemaProps, "", false)
	oracleDefault(value, schemaProps)
	new(oraclePruner).prune(value, schemaProps, "", false)
	oracleNulls(value, schemaProps)
	for name, value := range typeAndMetadata {
		members[name] = value
	}
	sort.Strings(pruner.unknown)
	return value, pruner.unknown
}

// toOpenAPI returns the schema as the library of kube-openapi reads it.
func toOpenAPI(schemaProps *v1.JSONSchemaProps) *spec.Schema {
	if schemaProps == nil {
		return nil
	}
	data, err := json.Marshal(schemaProps)
	if err != nil {
		panic(err)
	}
	var out spec.Schema
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return asValidated(&out, schemaProps)
}

// asValidated applies the differences between the text of a schema and the form that Kubernetes
// validates with.
func asValidated(out *spec.Schema, schemaProps *v1.JSONSchemaProps) *spec.Schema {
	if schemaProps.XIntOrString {
		out.Type = spec.StringOrArray{"integer", "string"}
	}
	if !supportedFormats[strings.ReplaceAll(out.Format, "-", "")] {
		out.Format = ""
	}
	for i, value := range schemaProps.Enum {
		out.Enum[i] = decode(value.Raw)
	}
	for name, property := range schemaProps.Properties {
		sub := out.Properties[name]
		out.Properties[name] = *asValidated(&sub, &property)
	}
	if schemaProps.AdditionalProperties != nil && schemaProps.AdditionalProperties.Schema != nil {
		asValidated(out.AdditionalProperties.Schema, schemaProps.AdditionalProperties.Schema)
	}
	if schemaProps.Items != nil {
		asValidated(out.Items.Schema, schemaProps.Items.Schema)
	}
	for i := range schemaProps.AllOf {
		asValidated(&out.AllOf[i], &schemaProps.AllOf[i])
	}
	for i := range schemaProps.AnyOf {
		asValidated(&out.AnyOf[i], &schemaProps.AnyOf[i])
	}
	for i := range schemaProps.OneOf {
		asValidated(&out.OneOf[i], &schemaProps.OneOf[i])
	}
	if schemaProps.Not != nil {
		asValidated(out.Not, schemaProps.Not)
	}
	return out
}

// ratchet is a validator of the library that tolerates unchanged values.
type ratchet struct {
	schema *spec.Schema
	props  *v1.JSONSchemaProps
	path   string
	value  any
	old    any
	known  bool // old is known
}

func (r *ratchet) SetPath(string)                 {}
func (r *ratchet) Applies(any, reflect.Kind) bool { return true }

func (r *ratchet) Validate(any) *validate.Result {
	options := func(opts *validate.SchemaValidatorOptions) {
		opts.NewValidatorForField = func(name string, schema *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
			current, _ := r.value.(map[string]any)
			old, ok := r.old.(map[string]any)
			before, hadField := old[name]
			sub := &ratchet{schema: schema, props: subSchema(r.props, name), path: path, value: current[name], old: before,
				known: r.known && ok && hadField && !(r.path == "" && (name == "kind" || name == "apiVersion"))}
			return sub
		}
		opts.NewValidatorForIndex = func(i int, schema *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
			list := r.value.([]any)
			before, ok := matchingOldItem(r.props, r.value, r.old, i)
			return &ratchet{schema: schema, props: itemSchema(r.props), path: path, value: list[i], old: before, known: r.known && ok}
		}
	}
	result := validate.NewSchemaValidator(r.schema, nil, r.path, strfmt.Default, options).Validate(r.value)
	if !result.IsValid() && r.known && oracleEqual(r.props, r.value, r.old) {
		return &validate.Result{MatchCount: result.MatchCount}
	}
	return result
}

// listTypeName returns the x-kubernetes-list-type of a schema.
func listTypeName(props *v1.JSONSchemaProps) string {
	if props == nil || props.XListType == nil {
		return ""
	}
	return *props.XListType
}

// matchingOldItem returns the old item with the same keys as an item of a list of type map.
func matchingOldItem(schemaProps *v1.JSONSchemaProps, list, old any, i int) (any, bool) {
	before, ok := old.([]any)
	if !ok {
		return nil, false
	}
	if listTypeName(schemaProps) == "map" {
		item, ok := list.([]any)[i].(map[string]any)
		if !ok {
			return nil, false
		}
		for _, oldItem := range before {
			members, ok := oldItem.(map[string]any)
			if ok &&
				!slices.ContainsFunc(
					schemaProps.XListMapKeys,
					func(k string) bool { return !isScalar(item[k]) || !reflect.DeepEqual(item[k], members[k]) },
				) {
				return members, true
			}
		}
	}
	return nil, false
}

// isScalar reports whether a value can be a key of a list item.
func isScalar(v any) bool {
	switch v.(type) {
	case string, bool, int64, float64:
		return true
	}
	return false
}

// oracleEqual reports whether a value is unchanged, so that its errors are tolerated.
func oracleEqual(schemaProps *v1.JSONSchemaProps, left, old any) bool {
	switch left := left.(type) {
	case []any:
		before, ok := old.([]any)
		if !ok || len(before) != len(left) {
			return false
		}
		for i := range left {
			oldValue, ok := matchingOldItem(schemaProps, left, old, i)
			if !ok || itemSchema(schemaProps) == nil {
				return listTypeName(schemaProps) != "map" && reflect.DeepEqual(left, before)
			}
			if !oracleEqual(itemSchema(schemaProps), left[i], oldValue) {
				return false
			}
		}
		return true
	case map[string]any:
		before, ok := old.(map[string]any)
		if !ok || len(before) != len(left) {
			return false
		}
		for k, v := range left {
			oldValue, ok := before[k]
			if sub := subSchema(schemaProps, k); !ok || sub == nil || !oracleEqual(sub, v, oldValue) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(left, old)
}

// oracleCheck returns the errors of keywords, sorted.
func oracleCheck(props *v1.JSONSchemaProps, value, old any, update bool) []string {
	validator := &ratchet{schema: toOpenAPI(props), props: props, value: value, old: old, known: update}
	var list field.ErrorList
	for _, err := range validator.Validate(nil).Errors {
		list = append(list, toFieldError(err))
	}
	return errorTexts(list)
}

// toFieldError converts an error of the library to the one that Kubernetes reports.
func toFieldError(err error) *field.Error {
	validation, ok := err.(*openapierrors.Validation)
	if !ok {
		return field.Invalid(nil, "", err.Error())
	}
	var at *field.Path
	if name := strings.TrimPrefix(validation.Name, "."); name != "" {
		at = at.Child(name)
	}
	value := validation.Value
	if value == nil {
		value = ""
	}
	switch validation.Code() {
	case openapierrors.RequiredFailCode:
		return field.Required(at, "")
	case openapierrors.EnumFailCode:
		var shown []string
		for _, allowed := range validation.Values {
			text, ok := allowed.(string)
			if !ok {
				encoded, _ := json.Marshal(allowed)
				text = string(encoded)
			}
			shown = append(shown, text)
		}
		return field.NotSupported(at, validation.Value, shown)
	case openapierrors.TooLongFailCode:
		return field.TooLong(at, "", int(validation.Valid.(int64)))
	case openapierrors.MaxItemsFailCode, openapierrors.TooManyPropertiesCode:
		return field.TooMany(at, int(validation.Value.(int64)), int(validation.Valid.(int64)))
	case openapierrors.InvalidTypeCode:
		return field.TypeInvalid(at, value, err.Error())
	}
	return field.Invalid(at, value, err.Error())
}

// errorTexts returns the types and texts of errors, sorted.
func errorTexts(list field.ErrorList) []string {
	var out []string
	for _, e := range list {
		out = append(out, string(e.Type)+" "+e.Error())
	}
	sort.Strings(out)
	return out
}

// canonical returns a value as JSON with sorted fields.
func canonical(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return text.String()
}

package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// pick draws one of several values.
func pick[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

// sometimes draws a bool that is true once in oneIn draws.
func sometimes(t *rapid.T, oneIn int) bool { return rapid.IntRange(1, oneIn).Draw(t, "chance") == 1 }

// names holds the names of properties. It is short, so that schemas and objects often match.
var names = []string{"a", "b", "c", "odd-name", "kind"}

// randomSchema draws a structural schema.
func randomSchema(t *rapid.T, depth int, isRoot bool) v1.JSONSchemaProps {
	schemaProps := v1.JSONSchemaProps{Nullable: sometimes(t, 6)}
	kinds := []string{"string", "integer", "number", "boolean", "int-or-string", "anything"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "object", "array", "array", "map")
	}
	kind := pick(t, "kind", kinds...)
	if isRoot {
		kind, schemaProps.Nullable = "object", false
	}
	yes := true
	switch kind {
	case "object":
		schemaProps.Type = "object"
		schemaProps.Properties = map[string]v1.JSONSchemaProps{}
		for range rapid.IntRange(0, 4).Draw(t, "properties") {
			schemaProps.Properties[pick(t, "name", names...)] = randomSchema(t, depth-1, false)
		}
		for range rapid.IntRange(0, 2).Draw(t, "required") {
			schemaProps.Required = append(schemaProps.Required, pick(t, "name", names...))
		}
		if sometimes(t, 5) {
			schemaProps.XPreserveUnknownFields = &yes
		}
	case "map":
		schemaProps.Type = "object"
		if sometimes(t, 5) {
			schemaProps.AdditionalProperties = &v1.JSONSchemaPropsOrBool{Allows: rapid.Bool().Draw(t, "allows")}
		} else {
			sub := randomSchema(t, depth-1, false)
			schemaProps.AdditionalProperties = &v1.JSONSchemaPropsOrBool{Allows: true, Schema: &sub}
		}
	case "array":
		randomList(t, &schemaProps, depth)
	case "int-or-string":
		schemaProps.XIntOrString = true
		if rapid.Bool().Draw(t, "anyOf") {
			schemaProps.AnyOf = []v1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}
		}
	case "anything":
		schemaProps.XPreserveUnknownFields = &yes
	default:
		schemaProps.Type = kind
	}
	randomRules(t, &schemaProps, 2)
	if !isRoot && sometimes(t, 5) {
		raw, _ := json.Marshal(randomValue(t, &schemaProps, depth))
		schemaProps.Default = &v1.JSON{Raw: raw}
	}
	return schemaProps
}

// randomList adds the keywords of a random list to a schema.
func randomList(t *rapid.T, schemaProps *v1.JSONSchemaProps, depth int) {
	schemaProps.Type = "array"
	item := randomSchema(t, depth-1, false)
	switch pick(t, "list", "", "", "atomic", "set", "map") {
	case "atomic":
		schemaProps.XListType = new(string)
		*schemaProps.XListType = "atomic"
	case "set":
		schemaProps.XListType = new(string)
		*schemaProps.XListType = "set"
	case "map":
		schemaProps.XListType = new(string)
		*schemaProps.XListType = "map"
		schemaProps.XListMapKeys = []string{"k", "l"}[:rapid.IntRange(1, 2).Draw(t, "keys")]
		item = v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{
			"k": {Type: "string"}, "l": {Type: "integer"}, "v": randomSchema(t, depth-1, false),
		}}
	}
	schemaProps.Items = &v1.JSONSchemaPropsOrArray{Schema: &item}
}

// randomRules adds random keywords to a schema, mostly of its type.
func randomRules(t *rapid.T, schemaProps *v1.JSONSchemaProps, depth int) {
	count := func(label string) *int64 { n := rapid.Int64Range(0, 3).Draw(t, label); return &n }
	number := func(label string) *float64 { n := pick(t, label, -1, 0, 0.5, 1, 2, 2.5, 3, 10); return &n }
	for range rapid.IntRange(0, 2).Draw(t, "rules") {
		switch rapid.IntRange(0, 16).Draw(t, "rule") {
		case 0:
			schemaProps.MinLength = count("n")
		case 1:
			schemaProps.MaxLength = count("n")
		case 2:
			schemaProps.Pattern = pick(t, "pattern", "^a", "b$", "^[0-9]+$", "(")
		case 3:
			schemaProps.Minimum, schemaProps.ExclusiveMinimum = number("min"), rapid.Bool().Draw(t, "exclusive")
		case 4:
			schemaProps.Maximum, schemaProps.ExclusiveMaximum = number("max"), rapid.Bool().Draw(t, "exclusive")
		case 5:
			schemaProps.MultipleOf = number("factor")
		case 6:
			schemaProps.MinItems = count("n")
		case 7:
			schemaProps.MaxItems = count("n")
		case 8:
			schemaProps.MinProperties = count("n")
		case 9:
			schemaProps.MaxProperties = count("n")
		case 10, 11:
			for range rapid.IntRange(1, 3).Draw(t, "enum") {
				schemaProps.Enum = append(schemaProps.Enum,
					v1.JSON{Raw: []byte(pick(t, "value", `"a"`, `"ab"`, `1`, `2`, `1.5`, `true`, `null`, `{"a":1}`, `["a"]`, `[1.0]`))})
			}
		case 12:
			schemaProps.Format = pick(t, "format", "date", "date-time", "ipv4", "byte", "int32", "uuid", "odd", "duration")
		case 13:
			schemaProps.Not = branch(t, depth)
		case 14:
			schemaProps.AllOf = branches(t, depth)
		case 15:
			schemaProps.AnyOf = branches(t, depth)
		case 16:
			schemaProps.OneOf = branches(t, depth)
		}
	}
}

// branches draws schemas for allOf, anyOf or oneOf.
func branches(t *rapid.T, depth int) []v1.JSONSchemaProps {
	var list []v1.JSONSchemaProps
	for range rapid.IntRange(1, 3).Draw(t, "branches") {
		if b := branch(t, depth); b != nil {
			list = append(list, *b)
		}
	}
	return list
}

// branch draws a schema for not, allOf, anyOf or oneOf, or returns nil if it would nest too deeply.
func branch(t *rapid.T, depth int) *v1.JSONSchemaProps {
	if depth == 0 {
		return nil
	}
	schemaProps := v1.JSONSchemaProps{}
	if sometimes(t, 3) {
		schemaProps.Type = pick(t, "type", "string", "integer", "object")
	}
	for range rapid.IntRange(0, 2).Draw(t, "properties") {
		if schemaProps.Properties == nil {
			schemaProps.Properties = map[string]v1.JSONSchemaProps{}
		}
		if b := branch(t, depth-1); b != nil {
			schemaProps.Properties[pick(t, "name", names...)] = *b
		}
	}
	if sometimes(t, 4) {
		if b := branch(t, depth-1); b != nil {
			schemaProps.Items = &v1.JSONSchemaPropsOrArray{Schema: b}
		}
	}
	if sometimes(t, 4) {
		schemaProps.Required = append(schemaProps.Required, pick(t, "name", names...))
	}
	if sometimes(t, 6) {
		schemaProps.AdditionalProperties = &v1.JSONSchemaPropsOrBool{Allows: false}
	}
	randomRules(t, &schemaProps, depth-1)
	return &schemaProps
}

// raw is JSON text with numbers in their original form.
type raw = json.RawMessage

// randomValue draws a value that may fit a schema.
func randomValue(t *rapid.T, schemaProps *v1.JSONSchemaProps, depth int) any {
	if schemaProps == nil || sometimes(t, 8) {
		return randomJSON(t, depth)
	}
	if len(schemaProps.Enum) > 0 && sometimes(t, 2) {
		return raw(schemaProps.Enum[rapid.IntRange(0, len(schemaProps.Enum)-1).Draw(t, "choice")].Raw)
	}
	switch schemaProps.Type {
	case "object":
		members := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(schemaProps.Properties)) {
			sub := schemaProps.Properties[key]
			if !sometimes(t, 4) {
				members[key] = randomValue(t, &sub, depth-1)
			}
		}
		if schemaProps.AdditionalProperties != nil {
			for range rapid.IntRange(0, 3).Draw(t, "members") {
				members[pick(t, "key", "x", "y", "a.b/c")] = randomValue(t, schemaProps.AdditionalProperties.Schema, depth-1)
			}
		}
		if sometimes(t, 4) {
			members[pick(t, "unknown", "u", "a", "kind", "ünknown")] = randomJSON(t, depth-1)
		}
		return members
	case "array":
		var list []any
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			list = append(list, randomValue(t, schemaProps.Items.Schema, depth-1))
		}
		if list == nil {
			list = []any{}
		}
		return list
	case "boolean":
		return rapid.Bool().Draw(t, "bool")
	case "integer", "number":
		return raw(pick(t, "number", "0", "1", "2", "3", "-1", "1.0", "2.5", "1e3", "97", "9223372036854775808", "0.1"))
	}
	return pick[any](
		t,
		"text",
		"",
		"a",
		"ab",
		"äöü",
		"12",
		"2024-02-29",
		"10.0.0.1",
		"aGk=",
		"1h",
		"x\"y",
		raw(`"\u0061\ud83d\ude00"`),
	)
}

// randomJSON draws a value without regard to a schema.
func randomJSON(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 8).Draw(t, "thing") {
	case 0, 1:
		return nil
	case 2:
		return pick(t, "text", "", "a", "abcd")
	case 3:
		return raw(pick(t, "number", "1", "-2", "1.5", "1e2"))
	case 4:
		return true
	case 5:
		if depth > 0 {
			return []any{randomJSON(t, depth-1), randomJSON(t, depth-1)}
		}
		return []any{}
	case 6, 7:
		if depth > 0 {
			return map[string]any{pick(t, "key", "a", "b", "z"): randomJSON(t, depth-1), "kind": randomJSON(t, depth-1)}
		}
	}
	return map[string]any{}
}

// writeRandomly renders a document with the members in a drawn order and with spaces.
func writeRandomly(t *rapid.T, out *strings.Builder, value any) {
	space := func() {
		if sometimes(t, 10) {
			out.WriteString(pick(t, "space", " ", "\n\t"))
		}
	}
	space()
	switch value := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		keys = rapid.Permutation(sortInPlace(keys)).Draw(t, "order")
		out.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				out.WriteByte(',')
			}
			space()
			data, _ := json.Marshal(key)
			out.Write(data)
			space()
			out.WriteByte(':')
			writeRandomly(t, out, value[key])
			space()
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for i, x := range value {
			if i > 0 {
				out.WriteByte(',')
			}
			writeRandomly(t, out, x)
			space()
		}
		out.WriteByte(']')
	case json.RawMessage:
		out.Write(value)
	default:
		data, err := json.Marshal(value)
		if err != nil {
			panic(fmt.Sprint(err, value))
		}
		out.Write(data)
	}
}

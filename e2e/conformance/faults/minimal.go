package faults

import (
	"encoding/json"
	"regexp"
	"slices"
	"unicode/utf8"

	"binnacle/e2e/conformance/comparison"
)

// Minimal returns a value of a schema with the required properties, those without a default, and
// the property spec. It regards the constraints of single values only.
func Minimal(schema map[string]any) any {
	if enum, ok := schema["enum"].([]any); ok && len(enum) > 0 {
		return enum[0]
	}
	if schema["x-kubernetes-int-or-string"] == true {
		return json.Number("1")
	}
	switch schema["type"] {
	case "integer", "number":
		if low, ok := schema["minimum"].(json.Number); ok {
			return low
		}
		return json.Number("1")
	case "boolean":
		return true
	case "array":
		out := []any{}
		items, _ := schema["items"].(map[string]any)
		if number(schema, "minItems") > 0 {
			out = append(out, Minimal(items))
		}
		return out
	case "string":
		return minimalText(schema)
	}
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for name, p := range properties {
		p, _ := p.(map[string]any)
		if _, defaulted := p["default"]; slices.Contains(required, any(name)) && !defaulted || name == "spec" {
			out[name] = Minimal(p)
		}
	}
	return out
}

// minimalText returns a text that satisfies a schema if one of the known texts does.
func minimalText(schema map[string]any) string {
	if schema["format"] == "date-time" {
		return "2020-01-01T00:00:00Z"
	}
	pattern, _ := schema["pattern"].(string)
	match, err := regexp.Compile(pattern)
	if err != nil {
		return texts[0]
	}
	for _, t := range append([]string{"text"}, texts...) {
		if n := utf8.RuneCountInString(t); match.MatchString(t) && n >= number(schema, "minLength") &&
			(schema["maxLength"] == nil || n <= number(schema, "maxLength")) {
			return t
		}
	}
	return texts[0]
}

// number returns an integer of a schema; 0 if it lacks it.
func number(schema map[string]any, name string) int {
	n, _ := comparison.Lookup(schema, name).(json.Number)
	i, _ := n.Int64()
	return int(i)
}

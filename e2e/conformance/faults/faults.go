package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"binnacle/e2e/conformance/comparison"
)

// Site is a place in an object.
type Site struct {
	Path   []string // keys and indices
	schema map[string]any
	value  any // Missing if the object lacks it
}

// Missing is the value of a place that an object lacks.
type Missing struct{}

// Change sets values of an object by their paths; null removes a value.
type Change struct {
	Set map[string]any
	Sub string // the subresource of an update
}

// MaxDepth limits the depth of schemas and of generated values.
const MaxDepth = 14

// sites returns the places of an object, and the properties that the object lacks.
func sites(v any, schema map[string]any, path []string) []Site {
	out := []Site{{Path: path, schema: schema, value: v}}
	switch t := v.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		additional, _ := schema["additionalProperties"].(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(t)) {
			sub, ok := properties[k].(map[string]any)
			if !ok {
				sub = additional
			}
			out = append(out, sites(t[k], sub, append(slices.Clone(path), k))...)
		}
		for _, k := range slices.Sorted(maps.Keys(properties)) {
			if _, has := t[k]; !has {
				out = append(out, Site{
					Path:   append(slices.Clone(path), k),
					schema: properties[k].(map[string]any),
					value:  Missing{},
				})
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i := range t {
			out = append(out, sites(t[i], items, append(slices.Clone(path), strconv.Itoa(i)))...)
		}
	}
	return out
}

// PickSite returns a random site below the root. Half of the picks avoid metadata, which all kinds
// share, and half of them are places that the object has.
func PickSite(r *rand.Rand, object any, schema map[string]any) Site {
	all := sites(object, schema, nil)
	if len(all) == 1 {
		return all[0]
	}
	var spec, present []Site
	for _, s := range all[1:] {
		if s.Path[0] != "metadata" && s.Path[0] != "apiVersion" && s.Path[0] != "kind" && s.Path[0] != "status" {
			spec = append(spec, s)
			if s.value != any(Missing{}) {
				present = append(present, s)
			}
		}
	}
	switch n := r.IntN(8); {
	case n < 3 && len(present) > 0:
		return present[r.IntN(len(present))]
	case n < 7 && len(spec) > 0:
		return spec[r.IntN(len(spec))]
	}
	return all[1+r.IntN(len(all)-1)]
}

// Set returns a copy of an object with a value at a path; Missing removes it.
func Set(v any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch t := v.(type) {
	case map[string]any:
		out := maps.Clone(t)
		if len(path) == 1 && value == any(Missing{}) {
			delete(out, path[0])
			return out
		}
		out[path[0]] = Set(t[path[0]], path[1:], value)
		return out
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 {
			return v
		}
		out := slices.Clone(t)
		for len(out) <= i {
			out = append(out, nil)
		}
		if len(path) == 1 && value == any(Missing{}) {
			return slices.Delete(out, i, i+1)
		}
		out[i] = Set(out[i], path[1:], value)
		return out
	}
	if value == any(Missing{}) {
		return v
	}
	if _, err := strconv.Atoi(path[0]); err == nil {
		return []any{Set(nil, path[1:], value)}
	}
	return map[string]any{path[0]: Set(nil, path[1:], value)}
}

// dotted splits a path such as spec.containers[0].name or metadata.annotations[a.b/c].
func dotted(path string) []string {
	var out []string
	for path != "" {
		if path[0] == '[' {
			key, rest, _ := strings.Cut(path[1:], "]")
			out, path = append(out, key), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(out, path)
		}
		out = append(out, path[:end])
		path = strings.TrimPrefix(path[end:], ".")
	}
	return out
}

// Apply returns a copy of an object with a change.
func (c Change) Apply(object map[string]any) map[string]any {
	var v any = object
	for _, path := range slices.Sorted(maps.Keys(c.Set)) {
		value := comparison.RoundTrip(c.Set[path])
		if value == nil {
			value = Missing{}
		}
		v = Set(v, dotted(path), value)
	}
	return v.(map[string]any)
}

// Pick returns a random element.
func Pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// Fault returns a value for a site that is often wrong, with a description.
func Fault(r *rand.Rand, s Site) (any, string) {
	if s.value == any(Missing{}) {
		v := Generate(r, s.schema, 0)
		return v, "add " + strings.Join(s.Path, ".") + " " + comparison.Shorten(comparison.JSONText(v), 80)
	}
	at := strings.Join(s.Path, ".")
	switch r.IntN(9) {
	case 0:
		return Missing{}, "remove " + at
	case 1:
		return nil, "null " + at
	case 2:
		v := wrongType(r, s.value)
		return v, "wrong type of " + at + " " + comparison.JSONText(v)
	case 3:
		switch t := s.value.(type) {
		case []any:
			if len(t) > 0 {
				return append(slices.Clone(t), t[r.IntN(len(t))]), "duplicate element of " + at
			}
		case map[string]any:
			out := maps.Clone(t)
			out["unknownField"] = "x"
			return out, "unknown field in " + at
		}
	case 4:
		if t, ok := s.value.(map[string]any); ok && len(t) > 0 {
			keys := slices.Sorted(maps.Keys(t))
			k := keys[r.IntN(len(keys))]
			out := maps.Clone(t)
			out[comparison.DuplicateKey+k] = t[k]
			return out, "duplicate member " + k + " of " + at
		}
	case 5:
		switch s.value.(type) {
		case []any:
			return []any{}, "empty " + at
		case map[string]any:
			return map[string]any{}, "empty " + at
		case string:
			return "", "empty " + at
		}
		return json.Number("0"), "zero " + at
	}
	v := Generate(r, s.schema, 0)
	return v, "other value of " + at + " " + comparison.Shorten(comparison.JSONText(v), 80)
}

func wrongType(r *rand.Rand, v any) any {
	others := []any{"text", json.Number("7"), json.Number("1.5"), true, []any{}, map[string]any{}, []any{"x"},
		map[string]any{"a": "b"}}
	for {
		if other := others[r.IntN(len(others))]; fmt.Sprintf("%T", other) != fmt.Sprintf("%T", v) {
			return other
		}
	}
}

var texts = []string{
	"a", "b-c", "", "A_b", "10.0.0.300", "192.168.1.1", "fd00::1", "10.1.0.0/16", "1Gi", "100m", "-1", "http",
	"example.com/x", "example.com", "a.b",
	"2020-01-01T00:00:00Z", "cpu", "memory", "*", "/x", "../x", "ünï", "x ", " x", "a/b/c", "-a", "a--b", "50%",
	"101%", "1X", "true", "Bogus", "a\nb",
	strings.Repeat("a", 64), strings.Repeat("b", 254), "kubernetes.io/x", "UPPER", "a=b", "https://example.com/x",
	"http://x", "=", "25h", "1h", "self.x == 1", "(", "cm", "default", "system:x",
}

var integers = []string{"0", "1", "2", "-1", "80", "443", "65536", "100", "101", "2147483647", "2147483648",
	"-2147483649", "9223372036854775807", "9223372036854775808", "1.5", "30000", "600", "1e3"}

// Generate returns a random value of a schema.
func Generate(r *rand.Rand, schema map[string]any, depth int) any {
	if enum, ok := schema["enum"].([]any); ok && r.IntN(3) > 0 {
		return enum[r.IntN(len(enum))]
	}
	if schema["format"] == "int-or-string" || schema["x-kubernetes-int-or-string"] == true {
		if r.IntN(2) == 0 {
			return json.Number(integers[r.IntN(len(integers))])
		}
		return texts[r.IntN(len(texts))]
	}
	switch schema["type"] {
	case "integer":
		return json.Number(integers[r.IntN(len(integers))])
	case "number":
		return json.Number([]string{"0", "1.5", "-1", "1e400", "-0.0", "3"}[r.IntN(6)])
	case "boolean":
		return r.IntN(2) == 0
	case "array":
		items, _ := schema["items"].(map[string]any)
		out := []any{}
		for range 1 + r.IntN(2) {
			out = append(out, Generate(r, items, depth+1))
		}
		if r.IntN(6) == 0 {
			out = append(out, out[0])
		}
		return out
	case "object":
		return generateObject(r, schema, depth)
	case "string":
		if schema["format"] == "byte" && r.IntN(2) == 0 {
			return "aGVsbG8="
		}
		if schema["format"] == "date-time" && r.IntN(2) == 0 {
			return "2020-01-01T00:00:00Z"
		}
		return texts[r.IntN(len(texts))]
	}
	if _, ok := schema["properties"]; ok {
		return generateObject(r, schema, depth)
	}
	return texts[r.IntN(len(texts))]
}

func generateObject(r *rand.Rand, schema map[string]any, depth int) any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	names := slices.Sorted(maps.Keys(properties))
	if required, ok := schema["required"].([]any); ok && r.IntN(8) > 0 {
		for _, name := range required {
			if p, ok := properties[name.(string)].(map[string]any); ok {
				out[name.(string)] = Generate(r, p, depth+1)
			}
		}
	}
	if len(names) > 0 && depth < MaxDepth {
		for range 1 + r.IntN(2) {
			name := names[r.IntN(len(names))]
			out[name] = Generate(r, properties[name].(map[string]any), depth+1)
		}
	}
	if additional, ok := schema["additionalProperties"].(map[string]any); ok {
		for range 1 + r.IntN(2) {
			out[texts[r.IntN(len(texts))]] = Generate(r, additional, depth+1)
		}
	}
	return out
}

// Mutate returns a copy of an object with one to three faults, and their description. Some faults are
// known changes.
func Mutate(r *rand.Rand, object, schema map[string]any, known []Change) (map[string]any, string) {
	var labels []string
	for range 1 + r.IntN(3)*r.IntN(2) {
		if len(known) > 0 && r.IntN(3) == 0 {
			c := known[r.IntN(len(known))]
			object = c.Apply(object)
			labels = append(labels, "set "+comparison.Shorten(comparison.JSONText(c.Set), 200))
			continue
		}
		s := PickSite(r, object, schema)
		v, label := Fault(r, s)
		object = Set(object, s.Path, v).(map[string]any)
		labels = append(labels, label)
	}
	return object, strings.Join(labels, ", ")
}

// WithMetadata adds a schema of metadata to that of a custom resource.
func WithMetadata(schema map[string]any) map[string]any {
	texts := map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
	text := map[string]any{"type": "string"}
	return Set(schema, strings.Split("properties.metadata", "."), map[string]any{"type": "object", "properties": map[string]any{
		"labels":            texts,
		"annotations":       texts,
		"name":              text,
		"namespace":         text,
		"uid":               text,
		"generation":        map[string]any{"type": "integer"},
		"finalizers":        map[string]any{"type": "array", "items": text},
		"generateName":      text,
		"creationTimestamp": text,
		"deletionTimestamp": text,
		"ownerReferences": map[string]any{
			"type": "array",
			"items": map[string]any{
				"type": "object",
				"properties": map[string]any{
					"apiVersion": text,
					"kind":       text,
					"name":       text,
					"uid":        text,
					"controller": map[string]any{"type": "boolean"},
				},
			},
		},
	}}).(map[string]any)
}

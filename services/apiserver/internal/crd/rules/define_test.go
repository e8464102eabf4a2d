package rules_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
)

// TestCheckDefaultEvaluatesRulesOfDefaults checks that defaults that break a rule are reported.
func TestCheckDefaultEvaluatesRulesOfDefaults(t *testing.T) {
	props := parseSchema(t, `{"type":"object","properties":{
		"a":{"type":"string","maxLength":9,"default":"old","x-kubernetes-validations":[
			{"rule":"oldSelf.hasValue() || self == 'new'","optionalOldSelf":true,"message":"begin with new"},
			{"rule":"self == oldSelf"}]},
		"b":{"type":"array","default":[{"k":"x","v":1}],"maxItems":3,
			"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
			"items":{"type":"object","properties":{
				"k":{"type":"string"},
				"v":{"type":"integer","x-kubernetes-validations":[{"rule":"self == oldSelf"},{"rule":"self > 1"}]}}}}}}`)
	errs := schema.CheckDefaults(t.Context(), field.NewPath("x"), props, true, compiler.CheckDefault)
	var got []string
	for _, e := range errs {
		got = append(got, e.Error())
	}
	want := []string{
		`x.properties[a].default: Invalid value: "string": begin with new`,
		`x.properties[b].default[0].v: Invalid value: "integer": failed rule: self > 1`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("CheckDefaults = %q, want %q", got, want)
	}

	const isRoot = false
	positive := parseSchema(t, `{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0"}]}`)
	if _, left := compiler.CheckDefault(t.Context(), nil, positive, isRoot, []byte("1"), 1); left >= 0 {
		t.Errorf("CheckDefault with a budget of 1: got remaining budget %d, want less than 0", left)
	}
}

// TestRulesAboveInvalidSchemasAreNotChecked checks that a known error suppresses the errors of
// rules of the same and outer schemas.
func TestRulesAboveInvalidSchemasAreNotChecked(t *testing.T) {
	props := parseSchema(t, `{"type":"object","x-kubernetes-validations":[{"rule":"self.x"}],"properties":{
		"a":{"type":"integer","x-kubernetes-validations":[{"rule":"self.y"}]},
		"ab":{"type":"integer","x-kubernetes-validations":[{"rule":"self.z"}]}}}`)
	at := field.NewPath("s")
	errs := compiler.CheckSchema(rules.SchemaCheck{
		Schema:      props,
		Path:        at,
		KnownErrors: field.ErrorList{field.Required(at.Child("properties").Key("a").Child("type"), "")},
	})
	if want := "s.properties[ab].x-kubernetes-validations[0].rule"; len(errs) != 1 || errs[0].Field != want {
		t.Errorf("CheckSchema = %v, want one error of %s", errs, want)
	}
}

// TestValidFieldPathResolvesProperties checks the field that a path names, and the errors of
// invalid paths.
func TestValidFieldPathResolvesProperties(t *testing.T) {
	schemaProps := parseSchema(t, `{"type":"object","properties":{
		"a":{"type":"object","properties":{"b.c":{"type":"string"},"it's":{"type":"string"}}},
		"m":{"type":"object","additionalProperties":{"type":"object","properties":{"x":{"type":"string"}}}},
		"s":{"type":"string"}}}`)
	const brackets, noBrackets = true, false
	tests := map[string]string{ // wanted field path or error by path
		".a":           "a",
		".a['b.c']":    "a.b.c",
		"['a']['b.c']": "a.b.c",
		".m.k":         "m[k]",
		".m['k'].x":    "m[k].x",
		`.a['it\'s']`:  "a.it's",
		"":             "<nil>",
		"a":            "expected [ or . but got: a",
		".x":           "does not refer to a valid field",
		".s.x":         "does not refer to a valid field",
		".a[":          "unexpected end of JSON path",
		".a['b.c'":     "unexpected end of JSON path",
		".a[b]":        "expected single quoted string but got b",
		`.a['\q']`:     `invalid string literal: invalid escape char \q`,
		".a['b.c'x":    "expected ] but got x",
		".":            "unexpected end of JSON path",
		".a['":         "expected single quoted string but got '",
	}
	for path, want := range tests {
		at, _, err := rules.ValidFieldPath(path, schemaProps, brackets)
		got := at.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("ValidFieldPath(%q) = %q, want %q", path, got, want)
		}
	}
	const bracketed, want = ".a['b.c']", "array notation is not allowed"
	if _, _, err := rules.ValidFieldPath(bracketed, schemaProps, noBrackets); err == nil || err.Error() != want {
		t.Errorf("ValidFieldPath(%q) without brackets = %v, want %s", bracketed, err, want)
	}
}

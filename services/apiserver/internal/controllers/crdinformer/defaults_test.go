package crdinformer

import (
	"encoding/json"
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// TestFieldSelectorsSeeDefaults checks that field selectors see objects with their defaults.
func TestFieldSelectorsSeeDefaults(t *testing.T) {
	const versions = `[
		{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
			"x":{"type":"string","default":"one"},
			"n":{"type":"string","nullable":true,"default":"two"},
			"p":{"type":"object","default":{"q":"given"},"properties":{"q":{"type":"string"},"r":{"type":"integer","default":3},"s":{"type":"boolean","nullable":true,"default":true}}},
			"none":{"type":"string"}}}}}}},
		{"name":"v2","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","default":{},"properties":{"x":{"type":"string","default":"other"}}}}}}},
		{"name":"v3","schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
		{"name":"v4"}]`
	paths := []string{".spec.n", ".spec.none", ".spec.p.q", ".spec.p.r", ".spec.p.s", ".spec.x"}
	absent, err := missingValues(paths, []byte(versions))
	if err != nil {
		t.Fatal(err)
	}
	var fields []registry.SelectableField
	for _, path := range paths {
		fields = append(fields, registry.SelectableField{Label: path[1:], Path: path})
	}
	read := codec.DocumentAttributes(fields, absent)
	for name, test := range map[string]struct {
		document string
		want     [6]string // values of paths
	}{
		"spec missing": {document: `{"apiVersion":"g/v1"}`, want: [6]string{}},
		"fields missing": {
			document: `{"apiVersion":"g/v1","spec":{}}`,
			want:     [6]string{"two", "", "given", "3", "true", "one"},
		},
		"fields present": {
			document: `{"apiVersion":"g/v1","spec":{"x":"mine","n":"n","none":"some","p":{"q":"q","r":4,"s":false}}}`,
			want:     [6]string{"n", "some", "q", "4", "false", "mine"},
		},
		"fields null": {
			document: `{"apiVersion":"g/v1","spec":{"x":null,"n":null,"none":null,"p":{"q":null,"r":null,"s":null}}}`,
			want:     [6]string{"", "", "", "3", "", "one"},
		},
		"parent null": {
			document: `{"apiVersion":"g/v1","spec":{"p":null}}`,
			want:     [6]string{"two", "", "given", "3", "true", "one"},
		},
		"parent empty": {
			document: `{"apiVersion":"g/v1","spec":{"p":{}}}`,
			want:     [6]string{"two", "", "", "3", "true", "one"},
		},
		"parent that is not an object": {
			document: `{"apiVersion":"g/v1","spec":{"p":"p"}}`,
			want:     [6]string{"two", "", "", "", "", "one"},
		},
		"stored in another version":            {document: `{"apiVersion":"g/v2"}`, want: [6]string{5: "other"}},
		"stored in a version without schema":   {document: `{"apiVersion":"g/v4","spec":{}}`, want: [6]string{}},
		"stored in a version without defaults": {document: `{"apiVersion":"g/v3","spec":{"x":"x"}}`, want: [6]string{5: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			attrs, err := read([]byte(test.document))
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, field := range attrs.Fields {
				got[field.Key] = field.Value
			}
			for i, field := range fields {
				if got[field.Label] != test.want[i] {
					t.Errorf("%s: got %q, want %q", field.Label, got[field.Label], test.want[i])
				}
			}
		})
	}
}

// TestMissingValuesRejectsMalformedVersions checks that versions that are not JSON are an error.
func TestMissingValuesRejectsMalformedVersions(t *testing.T) {
	if _, err := missingValues([]string{".spec.x"}, []byte(`{`)); err == nil {
		t.Error("missingValues(malformed versions) = nil error, want one")
	}
}

// TestVariantDependsOnDefaults checks that attributes with and without defaults have different variants,
// so that the cache does not mix them.
func TestVariantDependsOnDefaults(t *testing.T) {
	paths := []string{".spec.x"}
	absent, err := missingValues(paths, []byte(`[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","properties":{"x":{"type":"string","default":"one"}}}}}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if variant(paths, absent) == variant(paths, nil) {
		t.Error("variant with and without defaults: got equal ones, want different ones")
	}
}

// TestCostOfSelectableFieldsIsLinearInVersions checks that the cost of selectable fields is linear in the number of
// versions, and an object costs only its own version.
func TestCostOfSelectableFieldsIsLinearInVersions(t *testing.T) {
	const fields = 8 // per version
	define := func(versions int) (resourceConfig watchcache.ResourceConfig, allocated float64) {
		var versionTrees []any
		for i := range versions {
			properties, selectable := map[string]any{}, []any{}
			for j := range fields {
				name := fmt.Sprintf("f%d", i*fields+j)
				properties[name] = map[string]any{"type": "string", "default": name}
				selectable = append(selectable, map[string]any{"jsonPath": "." + name})
			}
			versionTrees = append(versionTrees, map[string]any{
				"name": fmt.Sprintf("v%d", i), "selectableFields": selectable,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": properties}},
			})
		}
		stored, err := json.Marshal(map[string]any{
			"spec":   map[string]any{"group": "g.test", "names": map[string]any{"plural": "ws"}, "versions": versionTrees},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		read := DefinitionReader(nil, "/registry", func(string, string) bool { return true }, false)
		allocated = testing.AllocsPerRun(1, func() {
			var ok bool
			resourceConfig, ok = read(stored)
			if !ok {
				t.Fatalf("read(%.200s) = false, want a definition", stored)
			}
		})
		return resourceConfig, allocated
	}
	_, few := define(20)
	resourceConfig, many := define(200)
	if many > 20*few {
		t.Errorf("got %v allocations for 20 versions and %v for 200, want at most %v", few, many, 20*few)
	}
	document := []byte(`{"apiVersion":"g.test/v1","metadata":{"name":"a"},"f8":"mine","f1599":"last"}`)
	var attrs attributes.Attributes
	allocations := testing.AllocsPerRun(1, func() {
		var err error
		if attrs, err = resourceConfig.Attributes("", document); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 20*fields {
		t.Errorf("got %v allocations for an object, want at most %v", allocations, 20*fields)
	}
	for field, want := range map[string]string{"f8": "mine", "f9": "f9", "f16": "", "f1599": "last"} {
		if got := attrs.Fields.Get(field); got != want {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
}

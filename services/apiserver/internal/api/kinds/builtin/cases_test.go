package builtin_test

import (
	"embed"
	"fmt"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
)

// cases contains inputs with their expected outputs.
//
//go:embed testdata/*.yaml
var cases embed.FS

// readCases reads a list of cases from testdata.
func readCases[T any](t *testing.T, name string) []T {
	t.Helper()
	data, err := cases.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	if err := yaml.UnmarshalStrict(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// byName returns the kinds of the default catalog by their names in the facts.
func byName(t testing.TB) map[string]*registry.Kind {
	t.Helper()
	return named(catalog(t))
}

// named returns the kinds of a catalog by their names in the facts.
func named(all *registry.Catalog) map[string]*registry.Kind {
	out := map[string]*registry.Kind{}
	for _, k := range all.Kinds() {
		out[nameOf(k)] = k
	}
	return out
}

// decode decodes an object of a kind strictly.
func decode(t testing.TB, kind *registry.Kind, value map[string]any) registry.Object {
	t.Helper()
	data, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	obj := kind.New()
	if err := yaml.UnmarshalStrict(data, obj); err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	return obj.(registry.Object)
}

// cellText returns a cell in the form of the cases: numbers have the types of YAML.
func cellText(cell any) any {
	switch v := cell.(type) {
	case registry.Age:
		return v.Prefix + "since " + v.Since.UTC().Format(time.RFC3339) + v.Suffix
	case int64:
		return float64(v)
	default:
		return v
	}
}

// TestCellsEqualReference compares the cells of objects with recorded ones.
func TestCellsEqualReference(t *testing.T) {
	type cellCase struct {
		Kind   string         `json:"kind"`
		Object map[string]any `json:"object"`
		Cells  map[string]any `json:"cells"`
	}
	kinds := byName(t)
	seen := map[string]map[string]bool{}
	for i, c := range readCases[cellCase](t, "cells.yaml") {
		t.Run(fmt.Sprintf("%d %s", i, c.Kind), func(t *testing.T) {
			kind := kinds[c.Kind]
			if kind == nil {
				t.Fatalf("no kind %s", c.Kind)
			}
			if seen[c.Kind] == nil {
				seen[c.Kind] = map[string]bool{"Name": true, "Age": true}
			}
			obj := decode(t, kind, c.Object)
			got := map[string]any{}
			for _, col := range kind.Presentation.Columns {
				if _, ok := c.Cells[col.Name]; ok {
					got[col.Name] = cellText(col.Cell(obj))
					seen[c.Kind][col.Name] = true
				}
			}
			if !reflect.DeepEqual(got, c.Cells) {
				t.Errorf("cells are\n%v, want\n%v", got, c.Cells)
			}
		})
	}
	for _, kind := range outsideCore(t) {
		for _, col := range kind.Presentation.Columns {
			if col.Name != "" && !seen[nameOf(kind)][col.Name] {
				t.Errorf("no case for column %s of %s", col.Name, nameOf(kind))
			}
		}
	}
}

// TestValidationErrorsEqualReference compares the errors of invalid objects with recorded ones.
func TestValidationErrorsEqualReference(t *testing.T) {
	type validationCase struct {
		Name   string         `json:"name"`
		Kind   string         `json:"kind"`
		Old    map[string]any `json:"old"`
		Object map[string]any `json:"object"`
		Errors []string       `json:"errors"`
	}
	kinds := byName(t)
	for _, c := range readCases[validationCase](t, "validation.yaml") {
		t.Run(c.Name, func(t *testing.T) {
			kind := kinds[c.Kind]
			if kind == nil {
				t.Fatalf("no kind %s", c.Kind)
			}
			var old registry.Object
			if c.Old != nil {
				old = decode(t, kind, c.Old)
			}
			if got := validationErrors(kind, decode(t, kind, c.Object), old); !reflect.DeepEqual(got, c.Errors) {
				t.Errorf("errors are\n%q, want\n%q", got, c.Errors)
			}
		})
	}
}

// validationErrors validates the creation of an object, or its update if old is set.
func validationErrors(kind *registry.Kind, obj, old registry.Object) []string {
	var errs field.ErrorList
	if old == nil {
		if kind.Create.Prepare != nil {
			kind.Create.Prepare(obj)
		}
		errs = meta.ValidateCreate(kind, obj)
		if kind.Create.Validate != nil {
			errs = append(errs, kind.Create.Validate(obj)...)
		}
	} else {
		if kind.Update.Prepare != nil {
			kind.Update.Prepare(obj, old)
		}
		obj.SetResourceVersion("1")
		meta.KeepServerFields(obj, old)
		errs = meta.ValidateUpdate(kind, kind.Update.Order, obj, old, func(field.ErrorList) field.ErrorList {
			if kind.Update.Validate == nil {
				return nil
			}
			return kind.Update.Validate(obj, old)
		})
	}
	var texts []string
	for _, e := range errs {
		texts = append(texts, e.Error())
	}
	return texts
}

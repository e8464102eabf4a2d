package core_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
)

// equalObjects reports whether two objects are semantically equal.
func equalObjects(a, b runtime.Object) bool { return equality.Semantic.DeepEqual(a, b) }

// partOf returns the field of an object with a Go name.
func partOf(o runtime.Object, name string) any {
	return reflect.ValueOf(o).Elem().FieldByName(name).Interface()
}

// parse strictly decodes an object of a kind from YAML.
func parse(t *testing.T, k *registry.Kind, text string) registry.Object {
	t.Helper()
	obj := k.New()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return obj.(registry.Object)
}

// texts returns the texts of errors, one per line.
func texts(errs field.ErrorList) string {
	out := make([]string, len(errs))
	for i, e := range errs {
		out[i] = e.Error()
	}
	return strings.Join(out, "\n")
}

// create defaults, prepares and validates a new object.
func create(kind *registry.Kind, obj registry.Object) field.ErrorList {
	if kind.Default != nil {
		kind.Default(obj)
	}
	if kind.Create.Prepare != nil {
		kind.Create.Prepare(obj)
	}
	errs := meta.ValidateCreate(kind, obj)
	if kind.Create.Validate != nil {
		errs = append(errs, kind.Create.Validate(obj)...)
	}
	return errs
}

// update defaults, prepares and validates a changed object.
func update(kind *registry.Kind, object, old registry.Object) field.ErrorList {
	if kind.Default != nil {
		kind.Default(object)
	}
	if kind.Update.Prepare != nil {
		kind.Update.Prepare(object, old)
	}
	object.SetResourceVersion("1")
	meta.KeepServerFields(object, old)
	return meta.ValidateUpdate(kind, kind.Update.Order, object, old, func(field.ErrorList) field.ErrorList {
		if kind.Update.Validate == nil {
			return nil
		}
		return kind.Update.Validate(object, old)
	})
}

// cell returns the cell of a column.
func cell(t *testing.T, kind *registry.Kind, column string, obj registry.Object) any {
	t.Helper()
	for _, c := range kind.Presentation.Columns {
		if c.Name == column {
			return c.Cell(obj)
		}
	}
	t.Fatalf("%s: no column %s, want one", kind.Kind, column)
	return nil
}

package olderversions

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// TestVersionsDecodeIntoTypesWithTheirFields compares the Go type that a version is decoded into
// with the version's own Go type: JSON names and protobuf numbers must be equal.
func TestVersionsDecodeIntoTypesWithTheirFields(t *testing.T) {
	for kind, all := range olderVersions {
		for _, olderVersion := range all {
			if kind.Group == v1.GroupName {
				continue // no library has the Go types of API services
			}
			own, err := scheme.Scheme.New(olderVersion.apiVersion.WithKind(kind.Kind))
			if err != nil {
				t.Error(err)
				continue
			}
			compareFields(t, fmt.Sprintf("%s %s", olderVersion.apiVersion, kind.Kind), typeOf(own), typeOf(olderVersion.decoded), map[reflect.Type]bool{})
		}
	}
}

// typeOf returns the type of the struct that an object points to.
func typeOf(o runtime.Object) reflect.Type { return reflect.TypeOf(o).Elem() }

// compareFields reports fields of a version's own type that have no equal in the type that it is
// decoded into. seen contains the compared types.
func compareFields(t *testing.T, path string, own, decoded reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	for own.Kind() == reflect.Pointer {
		own = own.Elem()
	}
	for decoded.Kind() == reflect.Pointer {
		decoded = decoded.Elem()
	}
	if own == decoded || seen[own] {
		return
	}
	seen[own] = true
	if own.Kind() != decoded.Kind() {
		t.Errorf("%s: got %s, want %s", path, decoded, own)
		return
	}
	switch own.Kind() {
	case reflect.Slice:
		compareFields(t, path, own.Elem(), decoded.Elem(), seen)
	case reflect.Map:
		compareFields(t, path, own.Key(), decoded.Key(), seen)
		compareFields(t, path, own.Elem(), decoded.Elem(), seen)
	case reflect.Struct:
		for i := range own.NumField() {
			structField := own.Field(i)
			other, ok := fieldLike(decoded, structField)
			if !ok {
				t.Errorf("%s: %s: no field like %s, want one", path, decoded, structField.Name)
				continue
			}
			compareFields(t, path+"."+structField.Name, structField.Type, other.Type, seen)
		}
	}
}

// fieldLike returns the field with the same name in JSON and the same number in protobuf.
func fieldLike(t reflect.Type, want reflect.StructField) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if candidate := t.Field(i); identity(candidate) == identity(want) {
			return candidate, true
		}
	}
	return reflect.StructField{}, false
}

// identity returns the JSON name and the protobuf number of a field.
func identity(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	parts := strings.SplitN(f.Tag.Get("protobuf"), ",", 3)
	return name + " " + strings.Join(parts[:min(2, len(parts))], ",")
}

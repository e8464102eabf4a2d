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
		for _, v := range all {
			if kind.Group == v1.GroupName {
				continue // no library has the Go types of API services
			}
			own, err := scheme.Scheme.New(v.apiVersion.WithKind(kind.Kind))
			if err != nil {
				t.Error(err)
				continue
			}
			compareFields(t, fmt.Sprintf("%s %s", v.apiVersion, kind.Kind), typeOf(own), typeOf(v.decoded), map[reflect.Type]bool{})
		}
	}
}

func typeOf(o runtime.Object) reflect.Type { return reflect.TypeOf(o).Elem() }

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
			f := own.Field(i)
			other, ok := fieldLike(decoded, f)
			if !ok {
				t.Errorf("%s: %s: no field like %s, want one", path, decoded, f.Name)
				continue
			}
			compareFields(t, path+"."+f.Name, f.Type, other.Type, seen)
		}
	}
}

// fieldLike returns the field with the same name in JSON and the same number in protobuf.
func fieldLike(t reflect.Type, want reflect.StructField) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); identity(f) == identity(want) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func identity(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	parts := strings.SplitN(f.Tag.Get("protobuf"), ",", 3)
	return name + " " + strings.Join(parts[:min(2, len(parts))], ",")
}

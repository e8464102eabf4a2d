package codec

import (
	"reflect"
	"strings"

	"binnacle/services/apiserver/internal/registry"
)

// emptiable finds the lists and maps, up to the first list or map on the way,
// whose JSON tells an empty one from none. Protobuf does not.
func emptiable(t reflect.Type, path []int) (out [][]int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		at := append(path[:len(path):len(path)], i)
		switch f.Type.Kind() {
		case reflect.Struct:
			out = append(out, emptiable(f.Type, at)...)
		case reflect.Slice, reflect.Map:
			if !strings.Contains(options, "omitempty") {
				out = append(out, at)
			}
		}
	}
	return out
}

// Settle leaves an object as reading it back will show it: what was sent as an
// empty list, and is stored as none, is none.
func (k *Coder) Settle(obj registry.Object) {
	if len(k.emptiable) == 0 {
		return
	}
	v := reflect.ValueOf(obj).Elem()
	for _, path := range k.emptiable {
		if f := v.FieldByIndex(path); !f.IsNil() && f.Len() == 0 {
			f.SetZero()
		}
	}
}

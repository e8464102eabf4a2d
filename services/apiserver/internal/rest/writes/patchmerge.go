package writes

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/registry"
)

// mergeInto applies a merge patch (RFC 7386) to an object in place, without encoding and decoding
// the fields that the patch does not name. It reports whether it did so. If the patch does
// something unusual, such as naming an unknown field, mergeInto returns false and the object is
// unusable; the caller takes the general path over the JSON of the whole object. For all patches
// that it supports, the two paths agree.
func mergeInto(obj registry.Object, patch []byte) bool {
	m, ok := members(patch)
	if !ok {
		return false
	}
	for _, name := range []string{"kind", "apiVersion"} {
		if _, named := m[name]; named {
			return false
		}
	}
	return mergeStruct(reflect.ValueOf(obj).Elem(), m)
}

// members returns the members of a JSON object. ok is false for anything else.
func members(raw []byte) (m map[string]json.RawMessage, ok bool) {
	if len(raw) == 0 || bytes.TrimSpace(raw)[0] != '{' {
		return nil, false
	}
	return m, json.Unmarshal(raw, &m) == nil
}

var null = []byte("null")

func mergeStruct(v reflect.Value, patch map[string]json.RawMessage) bool {
	fields := jsonFields(v.Type())
	for name, raw := range patch {
		index, ok := fields[name]
		if !ok || !mergeValue(v.FieldByIndex(index), raw) {
			return false
		}
	}
	return true
}

// mergeValue merges one member into its field.
func mergeValue(v reflect.Value, raw json.RawMessage) bool {
	if bytes.Equal(raw, null) {
		v.SetZero()
		return true
	}
	if raw[0] != '{' {
		if bytes.Contains(raw, null) {
			return false // the general path handles a null in a list
		}
		// Any value but an object replaces the existing one.
		fresh := reflect.New(v.Type())
		unknown, err := kjson.UnmarshalStrict(raw, fresh.Interface())
		if err != nil || len(unknown) > 0 {
			return false
		}
		v.Set(fresh.Elem())
		return true
	}
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		if t = t.Elem(); t.Kind() != reflect.Struct || decodesItself(t) {
			return false
		}
		if v.IsNil() {
			v.Set(reflect.New(t))
		}
		v = v.Elem()
	}
	m, ok := members(raw)
	if !ok {
		return false
	}
	switch {
	case decodesItself(t):
		return false
	case t.Kind() == reflect.Struct:
		return mergeStruct(v, m)
	case t == stringMap:
		return mergeStrings(v, m)
	}
	return false
}

var (
	stringMap   = reflect.TypeFor[map[string]string]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

func decodesItself(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshaler) }

// mergeStrings merges a map of strings such as labels. It copies the map, which another object may
// share.
func mergeStrings(v reflect.Value, patch map[string]json.RawMessage) bool {
	have := v.Interface().(map[string]string)
	merged := make(map[string]string, len(have)+len(patch))
	for k, s := range have {
		merged[k] = s
	}
	for k, raw := range patch {
		if bytes.Equal(raw, null) {
			delete(merged, k)
			continue
		}
		var s string
		if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
			return false
		}
		merged[k] = s
	}
	v.Set(reflect.ValueOf(merged))
	return true
}

// names returns the fields of an object that a patch names. ok reports whether they cover the whole
// patch; then no other field of the object needs conversion.
func (p *Patch) names(obj runtime.Object) (fields [][]int, ok bool) {
	if _, untyped := obj.(runtime.Unstructured); untyped {
		return nil, false
	}
	known := jsonFields(reflect.TypeOf(obj).Elem())
	for name := range p.tree {
		index, has := known[name]
		if !has { // a directive or an unknown field
			return nil, false
		}
		fields = append(fields, index)
	}
	return fields, true
}

// copyFields copies the given fields from one object to another.
func copyFields(to, from runtime.Object, fields [][]int) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for _, index := range fields {
		t.FieldByIndex(index).Set(f.FieldByIndex(index))
	}
}

// fieldsOf caches jsonFields.
var fieldsOf sync.Map // reflect.Type → map[string][]int

// jsonFields returns the fields of a struct by their JSON names, including those of embedded
// structs.
func jsonFields(t reflect.Type) map[string][]int {
	if known, ok := fieldsOf.Load(t); ok {
		return known.(map[string][]int)
	}
	fields := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && f.IsExported() {
			fields[name] = f.Index
		}
	}
	fieldsOf.Store(t, fields)
	return fields
}

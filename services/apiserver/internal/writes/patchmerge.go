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

// mergeInto applies a merge patch (RFC 7386) to an object in place, without
// encoding and decoding what the patch does not name. It tells whether it did;
// where it did not, because the patch does something unusual, such as naming a
// field that is not there, the object is spoilt, and the long way, over the
// JSON of the whole object, says what is to be said. In all that it does the two
// agree.
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

// members are the members of a JSON object; not ok for anything else.
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

// mergeValue merges one member into the field that it names.
func mergeValue(v reflect.Value, raw json.RawMessage) bool {
	if bytes.Equal(raw, null) {
		v.SetZero()
		return true
	}
	if raw[0] != '{' {
		if bytes.Contains(raw, null) {
			return false // what becomes of a null in a list is the long way's to say
		}
		// Anything but an object takes the place of what is there.
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

// mergeStrings merges labels and the like. The map may be another object's, and
// is copied.
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

// names are the fields of an object that a patch names. It tells whether they are
// all that the patch is about: nothing else of the object need be converted then.
func (p *Patch) names(obj runtime.Object) (fields [][]int, ok bool) {
	if _, untyped := obj.(runtime.Unstructured); untyped {
		return nil, false
	}
	known := jsonFields(reflect.TypeOf(obj).Elem())
	for name := range p.tree {
		index, has := known[name]
		if !has { // a directive, or a field that is not there
			return nil, false
		}
		fields = append(fields, index)
	}
	return fields, true
}

// copyFields lets one object have what another has in some fields.
func copyFields(to, from runtime.Object, fields [][]int) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for _, index := range fields {
		t.FieldByIndex(index).Set(f.FieldByIndex(index))
	}
}

// fieldsOf caches what types look like in JSON.
var fieldsOf sync.Map // reflect.Type → map[string][]int

// jsonFields are the fields of a struct by their JSON names, those of embedded
// structs among them.
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

package patch

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// mergeObject applies a merge patch (RFC 7386) to a copy of an object with a Go type. It is faster
// than mergeDocument, because it decodes only the fields that the patch names. The patch must not
// repeat keys.
//
// mergeObject returns false if the patch needs mergeDocument, for example because it names an
// unknown field. Otherwise, the result equals the result of mergeDocument.
func mergeObject(old registry.Object, patch *tape.Doc) (registry.Object, bool) {
	for _, name := range []string{"kind", "apiVersion"} {
		if patch.Find(tape.Root, name) != tape.None {
			return nil, false
		}
	}
	obj := old.DeepCopyObject().(registry.Object)
	m := objectMerger{patch: patch}
	return obj, m.mergeStruct(reflect.ValueOf(obj).Elem(), tape.Root)
}

// objectMerger applies a merge patch to a Go object. Its methods return false if the patch needs
// mergeDocument. The object may then be partly changed.
type objectMerger struct{ patch *tape.Doc }

// mergeStruct applies an object of the patch to the struct target.
func (m *objectMerger) mergeStruct(target reflect.Value, object tape.Ref) bool {
	fieldIndexes := jsonFields(target.Type())
	for key, end := m.patch.First(object), m.patch.Next(object); key < end; key = m.patch.Next(m.patch.Value(key)) {
		index, ok := fieldIndexes[m.patch.String(key)]
		if !ok || !m.mergeValue(target.FieldByIndex(index), m.patch.Value(key)) {
			return false
		}
	}
	return true
}

// mergeValue applies one member of the patch to the value of its field: null clears the value, an
// object is merged into it, and any other member replaces it.
func (m *objectMerger) mergeValue(value reflect.Value, member tape.Ref) bool {
	switch m.patch.Kind(member) {
	case tape.Null:
		value.SetZero()
		return true
	case tape.Object:
		return m.mergeIntoValue(value, member)
	default:
		return m.replaceValue(value, member)
	}
}

// replaceValue replaces the value of a field by a member of the patch that is neither null nor an object.
func (m *objectMerger) replaceValue(value reflect.Value, member tape.Ref) bool {
	text := m.patch.Text(member)
	if bytes.Contains(text, []byte("null")) {
		return false // a list may contain nulls, which mergeDocument removes
	}
	replacement := reflect.New(value.Type())
	unknown, err := kjson.UnmarshalStrict(text, replacement.Interface())
	if err != nil || len(unknown) > 0 {
		return false
	}
	value.Set(replacement.Elem())
	return true
}

// mergeIntoValue merges an object of the patch into the value of a field, which must be a struct, a
// pointer to a struct, or a map of strings.
func (m *objectMerger) mergeIntoValue(value reflect.Value, member tape.Ref) bool {
	fieldType := value.Type()
	if fieldType.Kind() == reflect.Pointer {
		fieldType = fieldType.Elem()
		if fieldType.Kind() != reflect.Struct || decodesItself(fieldType) {
			return false
		}
		if value.IsNil() {
			value.Set(reflect.New(fieldType))
		}
		value = value.Elem()
	}
	switch {
	case decodesItself(fieldType):
		return false
	case fieldType.Kind() == reflect.Struct:
		return m.mergeStruct(value, member)
	case fieldType == stringMap:
		return m.mergeStrings(value, member)
	}
	return false
}

var (
	stringMap   = reflect.TypeFor[map[string]string]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// decodesItself reports whether a type has its own JSON decoder.
func decodesItself(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshaler) }

// mergeStrings merges an object of the patch into a map of strings, such as labels. It replaces the
// map by a merged copy, because another object may share the map.
func (m *objectMerger) mergeStrings(target reflect.Value, object tape.Ref) bool {
	existing := target.Interface().(map[string]string)
	merged := make(map[string]string, len(existing)+m.patch.Len(object))
	maps.Copy(merged, existing)
	for key, end := m.patch.First(object), m.patch.Next(object); key < end; key = m.patch.Next(m.patch.Value(key)) {
		value := m.patch.Value(key)
		switch m.patch.Kind(value) {
		case tape.Null:
			delete(merged, m.patch.String(key))
		case tape.String:
			merged[strings.Clone(m.patch.String(key))] = strings.Clone(m.patch.String(value))
		default:
			return false
		}
	}
	target.Set(reflect.ValueOf(merged))
	return true
}

// fieldsOf caches the results of jsonFields.
var fieldsOf sync.Map // reflect.Type → map[string][]int

// jsonFields returns the index of each field of a struct, as for reflect.Value.FieldByIndex, by the
// field's JSON name. It includes the fields of embedded structs.
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

package views

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lazyTree returns an object as a tree for expressions, like Tree, but converts a field only when
// an expression reads it. The tree is not safe for concurrent use.
func lazyTree(encodings *StructEncodings, obj runtime.Object, kind schema.GroupVersionKind) any {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object
	}
	s := newLazyStruct(encodings, reflect.ValueOf(obj).Elem())
	s.kind = &kind
	return s
}

// lazyStruct presents a Go struct to CEL as a map. Find converts the field that it reads. Any other
// operation, such as an iteration, converts the whole struct.
type lazyStruct struct {
	encodings *StructEncodings
	encoding  *structEncoding
	value     reflect.Value
	// kind replaces the kind and apiVersion in the struct. It is nil if the struct is not an API
	// object.
	kind *schema.GroupVersionKind
	// fields holds the converted fields by their index in encoding.fields; nil until first read.
	fields []ref.Val
	// remaining holds the fields with the conversion byConverter; nil until one of them is read.
	remaining map[string]any
	// wholeMap is the whole struct as a map; nil until it is needed.
	wholeMap traits.Mapper
}

var _ traits.Mapper = (*lazyStruct)(nil)

// newLazyStruct returns the lazyStruct for a struct value.
func newLazyStruct(encodings *StructEncodings, value reflect.Value) *lazyStruct {
	s := &lazyStruct{encodings: encodings, encoding: encodings.forType(value.Type()), value: value}
	s.fields = make([]ref.Val, len(s.encoding.fields))
	return s
}

// Find implements traits.Mapper.
func (s *lazyStruct) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return s.mapper().Find(key)
	}
	if s.kind != nil {
		switch name {
		case "kind":
			return types.String(s.kind.Kind), true
		case "apiVersion":
			return types.String(s.kind.GroupVersion().String()), true
		}
	}
	i, ok := s.encoding.byName[string(name)]
	if !ok {
		return nil, false
	}
	if v := s.fields[i]; v != nil {
		return v, true
	}
	structField := &s.encoding.fields[i]
	v := s.value.FieldByIndex(structField.index)
	if structField.omitEmpty && isEmpty(v) {
		return nil, false
	}
	s.fields[i] = s.convertField(structField, v)
	return s.fields[i], true
}

// convertField returns the value of a field as CEL sees it.
func (s *lazyStruct) convertField(structField *field, value reflect.Value) ref.Val {
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return types.NullValue
		}
		if structField.conversion != byConverter {
			value = value.Elem()
		}
	case reflect.Slice, reflect.Map:
		if value.IsNil() {
			return types.NullValue
		}
	}
	switch structField.conversion {
	case asString:
		return types.String(value.String())
	case asBool:
		return types.Bool(value.Bool())
	case asInt:
		return types.Int(value.Int())
	case asLazyStruct:
		return newLazyStruct(s.encodings, value)
	case asLazyList:
		return &lazyList{encodings: s.encodings, list: value, elements: make([]ref.Val, value.Len())}
	case asStrings:
		list := make([]string, value.Len())
		for i := range list {
			list[i] = value.Index(i).String()
		}
		return types.NewStringList(types.DefaultTypeAdapter, list)
	case asStringMap:
		return types.DefaultTypeAdapter.NativeToValue(value.Interface())
	}
	return types.DefaultTypeAdapter.NativeToValue(s.remainingFields()[structField.name])
}

// remainingFields converts all fields with the conversion byConverter at once, and returns them by
// name.
func (s *lazyStruct) remainingFields() map[string]any {
	if s.remaining == nil {
		// The converter accepts only a whole struct, so partial is a copy with only these fields.
		partial := reflect.New(s.value.Type())
		for i := range s.encoding.fields {
			if structField := &s.encoding.fields[i]; structField.conversion == byConverter {
				partial.Elem().FieldByIndex(structField.index).Set(s.value.FieldByIndex(structField.index))
			}
		}
		s.remaining = convertStruct(partial)
	}
	return s.remaining
}

// convertStruct converts the struct that pointer points to. It panics if the struct cannot be converted,
// which does not happen for API types.
func convertStruct(pointer reflect.Value) map[string]any {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pointer.Interface())
	if err != nil {
		panic(err)
	}
	return tree
}

// mapper returns the whole struct as a CEL map.
func (s *lazyStruct) mapper() traits.Mapper {
	if s.wholeMap == nil {
		tree := convertStruct(s.value.Addr())
		if s.kind != nil {
			tree["kind"] = s.kind.Kind
			tree["apiVersion"] = s.kind.GroupVersion().String()
		}
		s.wholeMap = types.NewStringInterfaceMap(types.DefaultTypeAdapter, tree)
	}
	return s.wholeMap
}

// Get implements traits.Indexer.
func (s *lazyStruct) Get(key ref.Val) ref.Val {
	if v, ok := s.Find(key); ok {
		return v
	}
	return s.mapper().Get(key) // returns the right error
}

// Contains implements traits.Container.
func (s *lazyStruct) Contains(key ref.Val) ref.Val {
	v, ok := s.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(ok)
}

// Type implements ref.Val.
func (*lazyStruct) Type() ref.Type { return types.MapType }

// Size implements traits.Sizer.
func (s *lazyStruct) Size() ref.Val { return s.mapper().Size() }

// Iterator implements traits.Iterable.
func (s *lazyStruct) Iterator() traits.Iterator { return s.mapper().Iterator() }

// Equal implements ref.Val.
func (s *lazyStruct) Equal(other ref.Val) ref.Val { return s.mapper().Equal(other) }

// ConvertToNative implements ref.Val.
func (s *lazyStruct) ConvertToNative(expected reflect.Type) (any, error) {
	return s.mapper().ConvertToNative(expected)
}

// ConvertToType implements ref.Val.
func (s *lazyStruct) ConvertToType(to ref.Type) ref.Val { return s.mapper().ConvertToType(to) }

// IsZeroValue implements traits.Zeroer.
func (s *lazyStruct) IsZeroValue() bool { return s.mapper().Size() == types.IntZero }

// Value implements ref.Val.
func (s *lazyStruct) Value() any { return s.mapper().Value() }

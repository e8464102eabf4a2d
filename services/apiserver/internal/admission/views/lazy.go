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

// lazyTree returns an object as a tree for expressions, like Tree. It converts only the parts that an
// expression reads. The tree is not safe for concurrent use.
func lazyTree(shapes *StructEncodings, obj runtime.Object, kind schema.GroupVersionKind) any {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object
	}
	s := newStructure(shapes, reflect.ValueOf(obj).Elem())
	s.kind = &kind
	return s
}

// structure presents a Go struct as a map. It converts a field when the field is first read. Any
// other operation converts the whole struct.
type structure struct {
	encodings *StructEncodings
	encoding  *structEncoding
	value     reflect.Value
	// kind of an API object. It overrides the kind in the struct.
	kind *schema.GroupVersionKind
	// fields holds the converted fields, by index in the encoding; nil until first read.
	fields []ref.Val
	// remaining holds the fields that only the apimachinery converter can convert; nil until one of
	// them is read.
	remaining map[string]any
	asMapper  traits.Mapper
}

var _ traits.Mapper = (*structure)(nil)

func newStructure(shapes *StructEncodings, value reflect.Value) *structure {
	s := &structure{encodings: shapes, encoding: shapes.forType(value.Type()), value: value}
	s.fields = make([]ref.Val, len(s.encoding.fields))
	return s
}

// Find implements traits.Mapper.
func (s *structure) Find(key ref.Val) (ref.Val, bool) {
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
	f := &s.encoding.fields[i]
	v := s.value.FieldByIndex(f.index)
	if f.omitEmpty && isEmpty(v) {
		return nil, false
	}
	s.fields[i] = s.convert(f, v)
	return s.fields[i], true
}

// convert returns the value of a field as CEL sees it.
func (s *structure) convert(f *field, v reflect.Value) ref.Val {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return types.NullValue
		}
		if f.conversion != byConverter {
			v = v.Elem()
		}
	case reflect.Slice, reflect.Map:
		if v.IsNil() {
			return types.NullValue
		}
	}
	switch f.conversion {
	case asString:
		return types.String(v.String())
	case asBool:
		return types.Bool(v.Bool())
	case asInt:
		return types.Int(v.Int())
	case asStructure:
		return newStructure(s.encodings, v)
	case asStructures:
		return &structures{shapes: s.encodings, list: v, elements: make([]ref.Val, v.Len())}
	case asStrings:
		list := make([]string, v.Len())
		for i := range list {
			list[i] = v.Index(i).String()
		}
		return types.NewStringList(types.DefaultTypeAdapter, list)
	case asStringMap:
		return types.DefaultTypeAdapter.NativeToValue(v.Interface())
	}
	return types.DefaultTypeAdapter.NativeToValue(s.converted()[f.name])
}

// converted returns the fields that only the apimachinery converter can convert.
func (s *structure) converted() map[string]any {
	if s.remaining == nil {
		partial := reflect.New(s.value.Type())
		for i := range s.encoding.fields {
			if f := &s.encoding.fields[i]; f.conversion == byConverter {
				partial.Elem().FieldByIndex(f.index).Set(s.value.FieldByIndex(f.index))
			}
		}
		s.remaining = convert(partial)
	}
	return s.remaining
}

// convert converts the struct that p points to. It panics if the struct cannot be converted, which
// does not happen for API types.
func convert(p reflect.Value) map[string]any {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.Interface())
	if err != nil {
		panic(err)
	}
	return m
}

// mapper returns the whole struct as a CEL map.
func (s *structure) mapper() traits.Mapper {
	if s.asMapper == nil {
		m := convert(s.value.Addr())
		if s.kind != nil {
			m["kind"], m["apiVersion"] = s.kind.Kind, s.kind.GroupVersion().String()
		}
		s.asMapper = types.NewStringInterfaceMap(types.DefaultTypeAdapter, m)
	}
	return s.asMapper
}

// Get implements traits.Indexer.
func (s *structure) Get(key ref.Val) ref.Val {
	if v, ok := s.Find(key); ok {
		return v
	}
	return s.mapper().Get(key) // returns the right error
}

// Contains implements traits.Container.
func (s *structure) Contains(key ref.Val) ref.Val {
	v, ok := s.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(ok)
}

// Type implements ref.Val.
func (*structure) Type() ref.Type { return types.MapType }

// Size implements traits.Sizer.
func (s *structure) Size() ref.Val { return s.mapper().Size() }

// Iterator implements traits.Iterable.
func (s *structure) Iterator() traits.Iterator { return s.mapper().Iterator() }

// Equal implements ref.Val.
func (s *structure) Equal(other ref.Val) ref.Val { return s.mapper().Equal(other) }

// ConvertToNative implements ref.Val.
func (s *structure) ConvertToNative(expected reflect.Type) (any, error) {
	return s.mapper().ConvertToNative(expected)
}

// ConvertToType implements ref.Val.
func (s *structure) ConvertToType(to ref.Type) ref.Val { return s.mapper().ConvertToType(to) }

// IsZeroValue implements traits.Zeroer.
func (s *structure) IsZeroValue() bool { return s.mapper().Size() == types.IntZero }

// Value implements ref.Val.
func (s *structure) Value() any { return s.mapper().Value() }

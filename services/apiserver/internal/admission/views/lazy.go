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

// lazyTree is Tree that converts only the parts that an expression reads. It is not safe for
// concurrent use.
func lazyTree(shapes *Shapes, obj runtime.Object, kind schema.GroupVersionKind) any {
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
	shapes *Shapes
	shape  *shape
	of     reflect.Value
	// kind of an API object. It overrides the kind in the struct.
	kind *schema.GroupVersionKind
	// found holds the converted fields, by index in the shape.
	found []ref.Val
	// rest is the converter's result for the fields that are left to it.
	rest  map[string]any
	whole traits.Mapper
}

var _ traits.Mapper = (*structure)(nil)

func newStructure(shapes *Shapes, of reflect.Value) *structure {
	s := &structure{shapes: shapes, shape: shapes.of(of.Type()), of: of}
	s.found = make([]ref.Val, len(s.shape.fields))
	return s
}

// Find implements traits.Mapper.
func (s *structure) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return s.all().Find(key)
	}
	if s.kind != nil {
		switch name {
		case "kind":
			return types.String(s.kind.Kind), true
		case "apiVersion":
			return types.String(s.kind.GroupVersion().String()), true
		}
	}
	i, ok := s.shape.byName[string(name)]
	if !ok {
		return nil, false
	}
	if v := s.found[i]; v != nil {
		return v, true
	}
	f := &s.shape.fields[i]
	v := s.of.FieldByIndex(f.index)
	if f.omitted && isEmpty(v) {
		return nil, false
	}
	s.found[i] = s.convert(f, v)
	return s.found[i], true
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
		return newStructure(s.shapes, v)
	case asStructures:
		return &structures{shapes: s.shapes, of: v, elements: make([]ref.Val, v.Len())}
	case asStrings:
		list := make([]string, v.Len())
		for i := range list {
			list[i] = v.Index(i).String()
		}
		return types.NewStringList(types.DefaultTypeAdapter, list)
	case asTexts:
		return types.DefaultTypeAdapter.NativeToValue(v.Interface())
	}
	return types.DefaultTypeAdapter.NativeToValue(s.converted()[f.name])
}

// converted returns the fields that are left to the converter.
func (s *structure) converted() map[string]any {
	if s.rest == nil {
		those := reflect.New(s.of.Type())
		for i := range s.shape.fields {
			if f := &s.shape.fields[i]; f.conversion == byConverter {
				those.Elem().FieldByIndex(f.index).Set(s.of.FieldByIndex(f.index))
			}
		}
		s.rest = convert(those)
	}
	return s.rest
}

// convert converts the struct that p points to. All API types can be converted. For any other type,
// the evaluation fails.
func convert(p reflect.Value) map[string]any {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.Interface())
	if err != nil {
		panic(err)
	}
	return m
}

func (s *structure) all() traits.Mapper {
	if s.whole == nil {
		m := convert(s.of.Addr())
		if s.kind != nil {
			m["kind"], m["apiVersion"] = s.kind.Kind, s.kind.GroupVersion().String()
		}
		s.whole = types.NewStringInterfaceMap(types.DefaultTypeAdapter, m)
	}
	return s.whole
}

// Get implements traits.Indexer.
func (s *structure) Get(key ref.Val) ref.Val {
	if v, ok := s.Find(key); ok {
		return v
	}
	return s.all().Get(key) // returns the right error
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
func (s *structure) Size() ref.Val { return s.all().Size() }

// Iterator implements traits.Iterable.
func (s *structure) Iterator() traits.Iterator { return s.all().Iterator() }

// Equal implements ref.Val.
func (s *structure) Equal(other ref.Val) ref.Val { return s.all().Equal(other) }

// ConvertToNative implements ref.Val.
func (s *structure) ConvertToNative(want reflect.Type) (any, error) {
	return s.all().ConvertToNative(want)
}

// ConvertToType implements ref.Val.
func (s *structure) ConvertToType(to ref.Type) ref.Val { return s.all().ConvertToType(to) }

// IsZeroValue implements traits.Zeroer.
func (s *structure) IsZeroValue() bool { return s.all().Size() == types.IntZero }

// Value implements ref.Val.
func (s *structure) Value() any { return s.all().Value() }

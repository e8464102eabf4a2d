package views

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lazyTree is Tree in which lists of structures are turned when an expression looks
// at them. It is for one goroutine at a time.
func lazyTree(obj runtime.Object, kind schema.GroupVersionKind) (map[string]any, error) {
	if _, ok := obj.(*unstructured.Unstructured); ok {
		return Tree(obj, kind)
	}
	m, err := lazyFields(reflect.ValueOf(obj).Elem())
	if err != nil {
		return nil, err
	}
	m["kind"], m["apiVersion"] = kind.Kind, kind.GroupVersion().String()
	return m, nil
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// byFields tells of a structure that is written field by field.
func byFields(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(marshaler)
}

// lazyFields are the fields of a structure. All but structures and lists of them are
// left to the converter, which has to walk little then.
func lazyFields(v reflect.Value) (map[string]any, error) {
	t := v.Type()
	rest := reflect.New(t)
	rest.Elem().Set(v)
	later := map[string]any{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		switch value := v.Field(i); {
		case byFields(f.Type):
			m, err := lazyFields(value)
			if err != nil {
				return nil, err
			}
			later[name] = m
		case f.Type.Kind() == reflect.Slice && value.Len() > 0 && byFields(f.Type.Elem()):
			later[name] = &lazyList{of: reflect.ValueOf(value.Interface())}
		default:
			continue
		}
		rest.Elem().Field(i).SetZero()
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rest.Interface())
	if err != nil {
		return nil, err
	}
	for name, value := range later {
		m[name] = value
	}
	return m, nil
}

// lazyList is a list of structures.
type lazyList struct {
	of   reflect.Value
	made traits.Lister
}

var _ traits.Lister = (*lazyList)(nil)

func (l *lazyList) list() traits.Lister {
	if l.made != nil {
		return l.made
	}
	all := make([]any, l.of.Len())
	for i := range all {
		m, err := lazyFields(l.of.Index(i))
		if err != nil {
			all[i] = types.WrapErr(err)
			continue
		}
		all[i] = m
	}
	l.made = types.NewDynamicList(types.DefaultTypeAdapter, all)
	return l.made
}

// Size implements traits.Sizer.
func (l *lazyList) Size() ref.Val { return types.Int(l.of.Len()) }

// Type implements ref.Val.
func (*lazyList) Type() ref.Type { return types.ListType }

// Get implements traits.Indexer.
func (l *lazyList) Get(index ref.Val) ref.Val { return l.list().Get(index) }

// Add implements traits.Adder.
func (l *lazyList) Add(other ref.Val) ref.Val { return l.list().Add(other) }

// Contains implements traits.Container.
func (l *lazyList) Contains(value ref.Val) ref.Val { return l.list().Contains(value) }

// Iterator implements traits.Iterable.
func (l *lazyList) Iterator() traits.Iterator { return l.list().Iterator() }

// Equal implements ref.Val.
func (l *lazyList) Equal(other ref.Val) ref.Val { return l.list().Equal(other) }

// ConvertToNative implements ref.Val.
func (l *lazyList) ConvertToNative(want reflect.Type) (any, error) {
	return l.list().ConvertToNative(want)
}

// ConvertToType implements ref.Val.
func (l *lazyList) ConvertToType(to ref.Type) ref.Val { return l.list().ConvertToType(to) }

// IsZeroValue implements traits.Zeroer: there is something in it.
func (*lazyList) IsZeroValue() bool { return false }

// Value implements ref.Val.
func (l *lazyList) Value() any { return l.list().Value() }

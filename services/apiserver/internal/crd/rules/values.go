package rules

import (
	"fmt"
	"reflect"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/json/tape"
)

// value returns a value of a document as CEL sees it. Objects and lists are read lazily.
func value(h *shape, d *tape.Doc, r tape.Ref) ref.Val {
	kind := d.Kind(r)
	if kind == tape.Null {
		if h.nullable {
			return types.NullValue
		}
		return types.NewErr("invalid data, got null for schema with nullable=false")
	}
	switch h.form {
	case formObject, formMap, formEmpty:
		return objectValue(h, d, r)
	case formList:
		if kind != tape.Array {
			return types.NewErr("invalid data, expected an array for the provided schema with type=array")
		}
		return &list{shape: h, doc: d, at: r}
	case formText, formBytes, formDuration, formDate, formTime:
		if kind != tape.String {
			return types.NewErr("invalid data, expected string, got %s", goType(d, r))
		}
		return textValue(h.form, d.String(r))
	case formNumber, formInteger, formIntOrText:
		return numberValue(h.form, d, r)
	case formBool:
		if kind != tape.True && kind != tape.False {
			return types.NewErr("invalid data, expected bool, got %s", goType(d, r))
		}
		return types.Bool(kind == tape.True)
	case formOpaque:
		return &opaque{doc: d, at: r}
	}
	return types.NewErr("invalid type, expected object, array, number, integer, boolean or string, or no type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got %s", h.typeName)
}

// objectValue returns an object or a map.
func objectValue(h *shape, d *tape.Doc, r tape.Ref) ref.Val {
	if d.Kind(r) != tape.Object {
		return types.NewErr("invalid data, expected a map for the provided schema with type=object")
	}
	return &object{shape: h, doc: d, at: r}
}

// numberValue returns a number, or a string where the schema allows both.
func numberValue(f form, d *tape.Doc, r tape.Ref) ref.Val {
	kind := d.Kind(r)
	if kind == tape.Number {
		n, isInt := d.Int(r)
		switch {
		case f == formNumber:
			return types.Double(d.Float(r))
		case isInt:
			return types.Int(n)
		}
	}
	switch {
	case f == formIntOrText && kind == tape.String:
		return types.String(d.String(r))
	case f == formIntOrText:
		return types.NewErr("invalid data, expected XIntOrString value to be either a string or integer")
	case f == formNumber:
		return types.NewErr("invalid data, expected float, got %s", goType(d, r))
	}
	return types.NewErr("invalid data, expected int, got %s", goType(d, r))
}

// goType returns the Go type of a decoded value, for messages.
func goType(d *tape.Doc, r tape.Ref) string { return fmt.Sprintf("%T", d.Any(r)) }

// textValue returns a string as the type of its form.
func textValue(f form, s string) ref.Val {
	switch f {
	case formBytes:
		var b strfmt.Base64
		if err := b.UnmarshalText([]byte(s)); err != nil {
			return types.NewErr("Invalid byte formatted string %s: %v", s, err)
		}
		return types.Bytes(b)
	case formDuration:
		d, err := strfmt.ParseDuration(s)
		if err != nil {
			return types.NewErr("Invalid duration %s: %v", s, err)
		}
		return types.Duration{Duration: d}
	case formDate:
		t, err := time.Parse(strfmt.RFC3339FullDate, s)
		if err != nil {
			return types.NewErr("Invalid date formatted string %s: %v", s, err)
		}
		return types.Timestamp{Time: t}
	case formTime:
		t, err := strfmt.ParseDateTime(s)
		if err != nil {
			return types.NewErr("Invalid date-time formatted string %s: %v", s, err)
		}
		return types.Timestamp{Time: time.Time(t)}
	}
	return types.String(s)
}

// opaque is a value whose type no schema defines. It can only be compared.
type opaque struct {
	doc *tape.Doc
	at  tape.Ref
}

// ConvertToNative implements ref.Val.
func (o *opaque) ConvertToNative(want reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion to '%s' not supported for values preserved by x-kubernetes-preserve-unknown-fields", want)
}

// ConvertToType implements ref.Val.
func (o *opaque) ConvertToType(want ref.Type) ref.Val {
	return types.NewErr("type conversion to '%s' not supported for values preserved by x-kubernetes-preserve-unknown-fields", want.TypeName())
}

// Equal implements ref.Val.
func (o *opaque) Equal(other ref.Val) ref.Val {
	p, ok := other.(*opaque)
	return types.Bool(ok && tape.Equal(o.doc, o.at, p.doc, p.at))
}

// Type implements ref.Val.
func (o *opaque) Type() ref.Type { return types.UnknownType }

// Value implements ref.Val.
func (o *opaque) Value() any { return o.doc.Any(o.at) }

// object is an object with properties, or a map.
type object struct {
	shape *shape
	doc   *tape.Doc
	at    tape.Ref
}

var _ traits.Mapper = (*object)(nil)

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(want reflect.Type) (any, error) {
	if want.Kind() == reflect.Map {
		return o.Value(), nil
	}
	return nil, fmt.Errorf("type conversion error from '%s' to '%s'", o.Type(), want)
}

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(want ref.Type) ref.Val {
	switch want {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", o.Type(), want.TypeName())
}

// Equal implements ref.Val. Members without a schema are compared only if both objects have them.
func (o *object) Equal(other ref.Val) ref.Val {
	m, ok := other.(traits.Mapper)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if o.Size() != m.Size() {
		return types.False
	}
	d := o.doc
	for k, end := d.First(o.at), d.Next(o.at); k < end; k = d.Next(k + 1) {
		h := o.shape.named(d.String(k))
		if h == nil {
			if p, ok := other.(*object); ok {
				if v := p.doc.Find(p.at, d.String(k)); v != tape.None && !tape.Equal(d, k+1, p.doc, v) {
					return types.False
				}
			}
			continue
		}
		theirs, found := findNamed(m, d.String(k))
		if !found {
			return types.False
		}
		if eq := value(h, d, k+1).Equal(theirs); eq != types.True {
			return eq
		}
	}
	return types.True
}

// findNamed returns a member by its unescaped name.
func findNamed(m traits.Mapper, name string) (ref.Val, bool) {
	if o, ok := m.(*object); ok {
		return o.get(name, o.shape.named(name))
	}
	return m.Find(types.String(name))
}

// get returns a member with the shape h, or false if the object does not have it.
func (o *object) get(name string, h *shape) (ref.Val, bool) {
	v := o.doc.Find(o.at, name)
	if v == tape.None || h == nil {
		return nil, false
	}
	if o.shape.form == formObject && o.doc.Kind(v) == tape.Null {
		return nil, false // a null property counts as absent
	}
	return value(h, o.doc, v), true
}

// Type implements ref.Val.
func (o *object) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (o *object) Value() any { return o.doc.Any(o.at) }

// Contains implements traits.Container.
func (o *object) Contains(key ref.Val) ref.Val {
	v, found := o.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(found)
}

// Get implements traits.Indexer.
func (o *object) Get(key ref.Val) ref.Val {
	if v, found := o.Find(key); found {
		return v
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

// Find implements traits.Mapper. Properties have escaped names.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	if o.shape.form == formMap {
		return o.get(string(name), o.shape.values)
	}
	p, ok := o.shape.find(string(name))
	if !ok {
		return nil, false
	}
	return o.get(p.name, p.shape)
}

// Size implements traits.Sizer.
func (o *object) Size() ref.Val { return types.Int(o.doc.Len(o.at)) }

// Iterator implements traits.Iterable.
func (o *object) Iterator() traits.Iterator {
	it := &keys{object: o, next: o.doc.First(o.at)}
	it.skip()
	return it
}

// keys iterates over the names of an object's members that have a schema.
type keys struct {
	*object
	next tape.Ref
}

// skip moves to the next member that has a schema.
func (it *keys) skip() {
	for d := it.doc; it.next < d.Next(it.at) && it.shape.named(d.String(it.next)) == nil; {
		it.next = d.Next(it.next + 1)
	}
}

// HasNext implements traits.Iterator.
func (it *keys) HasNext() ref.Val { return types.Bool(it.next < it.doc.Next(it.at)) }

// Next implements traits.Iterator.
func (it *keys) Next() ref.Val {
	name := it.doc.String(it.next)
	it.next = it.doc.Next(it.next + 1)
	it.skip()
	if it.shape.form == formObject {
		if escaped, ok := celenv.Escape(name); ok {
			name = escaped
		}
	}
	return types.String(name)
}

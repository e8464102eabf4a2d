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

// celValue returns a value of a document as CEL sees it. Objects and lists are read lazily.
func celValue(shape *schemaShape, doc *tape.Doc, node tape.Ref) ref.Val {
	kind := doc.Kind(node)
	if kind == tape.Null {
		if shape.nullable {
			return types.NullValue
		}
		return types.NewErr("invalid data, got null for schema with nullable=false")
	}
	switch shape.form {
	case formObject, formMap, formEmpty:
		return objectValue(shape, doc, node)
	case formList:
		if kind != tape.Array {
			return types.NewErr("invalid data, expected an array for the provided schema with type=array")
		}
		return &list{shape: shape, doc: doc, node: node}
	case formString, formBytes, formDuration, formDate, formDateTime:
		if kind != tape.String {
			return types.NewErr("invalid data, expected string, got %s", goType(doc, node))
		}
		return stringValue(shape.form, doc.String(node))
	case formNumber, formInteger, formIntOrString:
		return numberValue(shape.form, doc, node)
	case formBool:
		if kind != tape.True && kind != tape.False {
			return types.NewErr("invalid data, expected bool, got %s", goType(doc, node))
		}
		return types.Bool(kind == tape.True)
	case formOpaque:
		return &opaque{doc: doc, node: node}
	}
	return types.NewErr(
		"invalid type, expected object, array, number, integer, boolean or string, or no type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got %s",
		shape.typeName,
	)
}

// objectValue returns an object or a map.
func objectValue(shape *schemaShape, doc *tape.Doc, node tape.Ref) ref.Val {
	if doc.Kind(node) != tape.Object {
		return types.NewErr("invalid data, expected a map for the provided schema with type=object")
	}
	return &object{shape: shape, doc: doc, node: node}
}

// numberValue returns a number, or a string where the schema allows both.
func numberValue(representation form, doc *tape.Doc, node tape.Ref) ref.Val {
	kind := doc.Kind(node)
	if kind == tape.Number {
		n, isInt := doc.Int(node)
		switch {
		case representation == formNumber:
			return types.Double(doc.Float(node))
		case isInt:
			return types.Int(n)
		}
	}
	switch {
	case representation == formIntOrString && kind == tape.String:
		return types.String(doc.String(node))
	case representation == formIntOrString:
		return types.NewErr("invalid data, expected XIntOrString value to be either a string or integer")
	case representation == formNumber:
		return types.NewErr("invalid data, expected float, got %s", goType(doc, node))
	}
	return types.NewErr("invalid data, expected int, got %s", goType(doc, node))
}

// goType returns the Go type of a decoded value, for messages.
func goType(doc *tape.Doc, node tape.Ref) string { return fmt.Sprintf("%T", doc.Any(node)) }

// stringValue returns a string as the type of its form.
func stringValue(f form, text string) ref.Val {
	switch f {
	case formBytes:
		var b strfmt.Base64
		if err := b.UnmarshalText([]byte(text)); err != nil {
			return types.NewErr("Invalid byte formatted string %s: %v", text, err)
		}
		return types.Bytes(b)
	case formDuration:
		duration, err := strfmt.ParseDuration(text)
		if err != nil {
			return types.NewErr("Invalid duration %s: %v", text, err)
		}
		return types.Duration{Duration: duration}
	case formDate:
		t, err := time.Parse(strfmt.RFC3339FullDate, text)
		if err != nil {
			return types.NewErr("Invalid date formatted string %s: %v", text, err)
		}
		return types.Timestamp{Time: t}
	case formDateTime:
		t, err := strfmt.ParseDateTime(text)
		if err != nil {
			return types.NewErr("Invalid date-time formatted string %s: %v", text, err)
		}
		return types.Timestamp{Time: time.Time(t)}
	}
	return types.String(text)
}

// opaque is a value whose type no schema defines. It can only be compared.
type opaque struct {
	doc  *tape.Doc
	node tape.Ref
}

// ConvertToNative implements ref.Val.
func (o *opaque) ConvertToNative(expected reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion to '%s' not supported for values preserved by x-kubernetes-preserve-unknown-fields",
		expected)
}

// ConvertToType implements ref.Val.
func (o *opaque) ConvertToType(expected ref.Type) ref.Val {
	return types.NewErr(
		"type conversion to '%s' not supported for values preserved by x-kubernetes-preserve-unknown-fields",
		expected.TypeName(),
	)
}

// Equal implements ref.Val.
func (o *opaque) Equal(other ref.Val) ref.Val {
	p, ok := other.(*opaque)
	return types.Bool(ok && tape.Equal(o.doc, o.node, p.doc, p.node))
}

// Type implements ref.Val.
func (o *opaque) Type() ref.Type { return types.UnknownType }

// Value implements ref.Val.
func (o *opaque) Value() any { return o.doc.Any(o.node) }

// object is an object with properties, or a map.
type object struct {
	shape *schemaShape
	doc   *tape.Doc
	node  tape.Ref
}

var _ traits.Mapper = (*object)(nil)

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(expected reflect.Type) (any, error) {
	if expected.Kind() == reflect.Map {
		return o.Value(), nil
	}
	return nil, fmt.Errorf("type conversion error from '%s' to '%s'", o.Type(), expected)
}

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(expected ref.Type) ref.Val {
	switch expected {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", o.Type(), expected.TypeName())
}

// Equal implements ref.Val. Members without a schema are compared only if both objects have them.
func (o *object) Equal(other ref.Val) ref.Val {
	mapper, ok := other.(traits.Mapper)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if o.Size() != mapper.Size() {
		return types.False
	}
	doc := o.doc
	for k, end := doc.First(o.node), doc.Next(o.node); k < end; k = doc.Next(k + 1) {
		name, value := doc.String(k), k+1
		shape := o.shape.memberShape(name)
		if shape == nil {
			if p, ok := other.(*object); ok {
				if v := p.doc.Find(p.node, name); v != tape.None && !tape.Equal(doc, value, p.doc, v) {
					return types.False
				}
			}
			continue
		}
		theirs, found := findMember(mapper, name)
		if !found {
			return types.False
		}
		if eq := celValue(shape, doc, value).Equal(theirs); eq != types.True {
			return eq
		}
	}
	return types.True
}

// findMember returns a member by its unescaped name.
func findMember(m traits.Mapper, name string) (ref.Val, bool) {
	if o, ok := m.(*object); ok {
		return o.member(name, o.shape.memberShape(name))
	}
	return m.Find(types.String(name))
}

// member returns a member with the given shape, or false if the object does not have it.
func (o *object) member(name string, shape *schemaShape) (ref.Val, bool) {
	value := o.doc.Find(o.node, name)
	if value == tape.None || shape == nil {
		return nil, false
	}
	if o.shape.form == formObject && o.doc.Kind(value) == tape.Null {
		return nil, false // a null property counts as absent
	}
	return celValue(shape, o.doc, value), true
}

// Type implements ref.Val.
func (o *object) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (o *object) Value() any { return o.doc.Any(o.node) }

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
		return o.member(string(name), o.shape.values)
	}
	p, ok := o.shape.property(string(name))
	if !ok {
		return nil, false
	}
	return o.member(p.name, p.shape)
}

// Size implements traits.Sizer.
func (o *object) Size() ref.Val { return types.Int(o.doc.Len(o.node)) }

// Iterator implements traits.Iterable.
func (o *object) Iterator() traits.Iterator {
	it := &memberIterator{object: o, next: o.doc.First(o.node)}
	it.skipUndeclared()
	return it
}

// memberIterator iterates over the names of an object's members that have a schema.
type memberIterator struct {
	*object
	next tape.Ref
}

// skipUndeclared moves to the next member that has a schema.
func (it *memberIterator) skipUndeclared() {
	for doc := it.doc; it.next < doc.Next(it.node) && it.shape.memberShape(doc.String(it.next)) == nil; {
		it.next = doc.Next(it.next + 1)
	}
}

// HasNext implements traits.Iterator.
func (it *memberIterator) HasNext() ref.Val { return types.Bool(it.next < it.doc.Next(it.node)) }

// Next implements traits.Iterator.
func (it *memberIterator) Next() ref.Val {
	name := it.doc.String(it.next)
	it.next = it.doc.Next(it.next + 1)
	it.skipUndeclared()
	if it.shape.form == formObject {
		if escaped, ok := celenv.Escape(name); ok {
			name = escaped
		}
	}
	return types.String(name)
}

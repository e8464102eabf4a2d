package apitype

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// Wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireStart   = 3
	wireEnd     = 4
	wireFixed32 = 5
)

// message is implemented by a type with its own protobuf methods.
type message interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

var messageType = reflect.TypeOf((*message)(nil)).Elem()

// form determines how a value is encoded.
type form uint8

const (
	formBool form = iota
	formInt
	formUint
	formDouble
	formString
	formBytes
	// formStruct uses a program, formMessage the type's own methods.
	formStruct
	formMessage
)

func (f form) wireType() int {
	switch f {
	case formBool, formInt, formUint:
		return wireVarint
	case formDouble:
		return wireFixed64
	default:
		return wireBytes
	}
}

// multiplicity is how many values a field has: one, at most one (a pointer), a list, or the entries
// of a map.
type multiplicity uint8

const (
	singleValue multiplicity = iota
	pointerValue
	sliceValue
	mapValue
)

// element is one value: its form, its Go type and, for a struct, its program.
type element struct {
	form form
	typ  reflect.Type
	sub  *program
}

// step is one field of a struct.
type step struct {
	index        int // of the field in the struct
	num          int // of the field on the wire
	multiplicity multiplicity
	elem         element
}

// program describes how a struct is encoded and decoded. Its steps are sorted by field number,
// which is the order on the wire.
type program struct {
	typ   reflect.Type
	steps []step
	byNum map[int]*step
}

// programs caches finished programs by type. Its size is bounded by the number of types in the
// binary.
var programs sync.Map

func programOf(t reflect.Type) (*program, error) {
	if p, ok := programs.Load(t); ok {
		return p.(*program), nil
	}
	c := compiler{}
	p, err := c.compile(t)
	if err != nil {
		return nil, err
	}
	programs.Store(t, p)
	return p, nil
}

// compiler holds the finished and the unfinished programs of one compilation. Recursive types refer
// to unfinished ones.
type compiler map[reflect.Type]*program

// compile returns the program of a struct.
func (c compiler) compile(t reflect.Type) (*program, error) {
	if p := c[t]; p != nil {
		return p, nil
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct", t)
	}
	p := &program{typ: t, byNum: map[int]*step{}}
	c[t] = p
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := f.Tag.Get("protobuf")
		if tag == "" {
			continue
		}
		num, err := fieldNumber(tag)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		s := step{index: i, num: num}
		if err := c.setField(&s, f.Type); err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		p.steps = append(p.steps, s)
	}
	sort.Slice(p.steps, func(i, j int) bool { return p.steps[i].num < p.steps[j].num })
	for i := range p.steps {
		s := &p.steps[i]
		if p.byNum[s.num] != nil {
			return nil, fmt.Errorf("%s has two fields of number %d", t, s.num)
		}
		p.byNum[s.num] = s
	}
	return p, nil
}

// fieldNumber returns the field number in a protobuf tag, such as 3 in "bytes,3,opt,name=kind".
func fieldNumber(tag string) (int, error) {
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return 0, fmt.Errorf("protobuf tag %q has no number", tag)
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n < 1 || n > 1<<29-1 {
		return 0, fmt.Errorf("protobuf tag %q has no valid number", tag)
	}
	return n, nil
}

// setField sets the multiplicity and the element of a step from the type of its field.
func (c compiler) setField(s *step, t reflect.Type) (err error) {
	switch {
	case t.Kind() == reflect.Pointer:
		s.multiplicity = pointerValue
		t = t.Elem()
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		s.multiplicity = sliceValue
		t = t.Elem()
	case t.Kind() == reflect.Map && !isMessage(t):
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("maps by %s are not supported", t.Key())
		}
		s.multiplicity = mapValue
		t = t.Elem()
	}
	s.elem, err = c.elementOf(t)
	return err
}

// isMessage reports whether a type has its own protobuf methods.
func isMessage(t reflect.Type) bool { return reflect.PointerTo(t).Implements(messageType) }

// elementOf returns the element of a type.
func (c compiler) elementOf(t reflect.Type) (element, error) {
	e := element{typ: t}
	if isMessage(t) {
		e.form = formMessage
		return e, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		e.form = formBool
	case reflect.Int32, reflect.Int64:
		e.form = formInt
	case reflect.Uint32, reflect.Uint64:
		e.form = formUint
	case reflect.Float64:
		e.form = formDouble
	case reflect.String:
		e.form = formString
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return e, fmt.Errorf("%s is not supported", t)
		}
		e.form = formBytes
	case reflect.Struct:
		e.form = formStruct
		var err error
		if e.sub, err = c.compile(t); err != nil {
			return e, err
		}
	default:
		return e, fmt.Errorf("%s is not supported", t)
	}
	return e, nil
}

// structOf returns the struct that v points to and its program.
func structOf(v any) (reflect.Value, *program, error) {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Pointer || rv.IsNil() || rv.Elem().Kind() != reflect.Struct {
		return rv, nil, fmt.Errorf("%T is not a pointer to a struct", v)
	}
	p, err := programOf(rv.Elem().Type())
	return rv.Elem(), p, err
}

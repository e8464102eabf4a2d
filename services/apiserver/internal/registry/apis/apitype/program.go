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

func programOf(goType reflect.Type) (*program, error) {
	if p, ok := programs.Load(goType); ok {
		return p.(*program), nil
	}
	c := compiler{}
	p, err := c.compile(goType)
	if err != nil {
		return nil, err
	}
	programs.Store(goType, p)
	return p, nil
}

// compiler holds the finished and the unfinished programs of one compilation. Recursive types refer
// to unfinished ones.
type compiler map[reflect.Type]*program

// compile returns the program of a struct.
func (c compiler) compile(goType reflect.Type) (*program, error) {
	if compiled := c[goType]; compiled != nil {
		return compiled, nil
	}
	if goType.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct", goType)
	}
	compiled := &program{typ: goType, byNum: map[int]*step{}}
	c[goType] = compiled
	for i := 0; i < goType.NumField(); i++ {
		structField := goType.Field(i)
		tag := structField.Tag.Get("protobuf")
		if tag == "" {
			continue
		}
		num, err := fieldNumber(tag)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", goType, structField.Name, err)
		}
		s := step{index: i, num: num}
		if err := c.setField(&s, structField.Type); err != nil {
			return nil, fmt.Errorf("%s.%s: %w", goType, structField.Name, err)
		}
		compiled.steps = append(compiled.steps, s)
	}
	sort.Slice(compiled.steps, func(i, j int) bool { return compiled.steps[i].num < compiled.steps[j].num })
	for i := range compiled.steps {
		s := &compiled.steps[i]
		if compiled.byNum[s.num] != nil {
			return nil, fmt.Errorf("%s has two fields of number %d", goType, s.num)
		}
		compiled.byNum[s.num] = s
	}
	return compiled, nil
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
func (c compiler) setField(fieldStep *step, goType reflect.Type) (err error) {
	switch {
	case goType.Kind() == reflect.Pointer:
		fieldStep.multiplicity = pointerValue
		goType = goType.Elem()
	case goType.Kind() == reflect.Slice && goType.Elem().Kind() != reflect.Uint8:
		fieldStep.multiplicity = sliceValue
		goType = goType.Elem()
	case goType.Kind() == reflect.Map && !isMessage(goType):
		if goType.Key().Kind() != reflect.String {
			return fmt.Errorf("maps by %s are not supported", goType.Key())
		}
		fieldStep.multiplicity = mapValue
		goType = goType.Elem()
	}
	fieldStep.elem, err = c.elementOf(goType)
	return err
}

// isMessage reports whether a type has its own protobuf methods.
func isMessage(t reflect.Type) bool { return reflect.PointerTo(t).Implements(messageType) }

// elementOf returns the element of a type.
func (c compiler) elementOf(goType reflect.Type) (element, error) {
	compiled := element{typ: goType}
	if isMessage(goType) {
		compiled.form = formMessage
		return compiled, nil
	}
	switch goType.Kind() {
	case reflect.Bool:
		compiled.form = formBool
	case reflect.Int32, reflect.Int64:
		compiled.form = formInt
	case reflect.Uint32, reflect.Uint64:
		compiled.form = formUint
	case reflect.Float64:
		compiled.form = formDouble
	case reflect.String:
		compiled.form = formString
	case reflect.Slice:
		if goType.Elem().Kind() != reflect.Uint8 {
			return compiled, fmt.Errorf("%s is not supported", goType)
		}
		compiled.form = formBytes
	case reflect.Struct:
		compiled.form = formStruct
		var err error
		if compiled.sub, err = c.compile(goType); err != nil {
			return compiled, err
		}
	default:
		return compiled, fmt.Errorf("%s is not supported", goType)
	}
	return compiled, nil
}

// structOf returns the struct that message points to and its program.
func structOf(message any) (reflect.Value, *program, error) {
	value := reflect.ValueOf(message)
	if value.Kind() != reflect.Pointer || value.IsNil() || value.Elem().Kind() != reflect.Struct {
		return value, nil, fmt.Errorf("%T is not a pointer to a struct", message)
	}
	p, err := programOf(value.Elem().Type())
	return value.Elem(), p, err
}

package schema

import (
	"bytes"
	"sync"

	"binnacle/services/apiserver/internal/customresource/tape"
)

// Program is a compiled schema: a table of nodes, the root first. It may be
// nil, which is the program of no schema.
type Program struct {
	nodes []node
	// defaults tells that the program checks default values, to which other
	// rules apply than to resources.
	defaults bool
	// mostFilled is how many bytes of defaults an object is given at most, beside those of what is in
	// it, and mostFallback how many stand for a null.
	mostFilled, mostFallback int
	// most is what one check may take: mostMatched.
	most int
}

// Weight is how many bytes a document of JSON, YAML or CBOR may have once its defaults are filled in,
// about: what has none of them counts what it is.
func (p *Program) Weight(doc []byte, cbor bool) int {
	if p == nil || p.mostFallback == 0 {
		return len(doc)
	}
	objects, nulls := 0, 0
	for _, b := range doc {
		switch {
		case cbor && b>>5 == cborMap:
			objects++
		case cbor && b == cborNull:
			nulls++
		case !cbor && (b == '{' || b == '\n' || b == '\r'): // a line of YAML may be one
			objects++
		}
	}
	if !cbor {
		nulls = bytes.Count(doc, []byte("null")) + bytes.Count(doc, []byte{'~'})
	}
	return min(MaxShaped, len(doc)+p.mostFilled*objects+p.mostFallback*nulls)
}

// How CBOR begins a map, by the highest bits of a byte, and a null (RFC 8949, "Specification of the CBOR
// Encoding").
const cborMap, cborNull = 5, 0xf6

// Place is a node of a program, which stands for a schema.
type Place int32

const (
	nowhere Place = -1
	root    Place = 0
)

// Nowhere is the place of no schema, Root that of the resource's.
const (
	Nowhere = nowhere
	Root    = root
)

// Property returns the place of a property's schema, or Nowhere.
func (p *Program) Property(at Place, name string) Place {
	n := &p.nodes[at]
	if i := n.named(name); i >= 0 {
		return n.props[i].at
	}
	return nowhere
}

// Items returns the place of the items' schema, or Nowhere.
func (p *Program) Items(at Place) Place { return p.nodes[at].items }

// Values returns the place of the schema of properties that are not named, or
// Nowhere.
func (p *Program) Values(at Place) Place { return p.nodes[at].values }

// additional says what a schema says of properties that it does not name.
type additional uint8

const (
	unsaid additional = iota
	never             // additionalProperties: false
	always            // additionalProperties: true
	typed             // additionalProperties: a schema
)

// listType is x-kubernetes-list-type.
type listType uint8

const (
	listAtomic listType = iota // also when nothing is said
	listSet
	listMap
)

// types is a set of JSON types.
type types uint8

const (
	typeObject types = 1 << iota
	typeArray
	typeString
	typeInteger
	typeNumber
	typeBoolean
	typeNull
)

type node struct {
	props    []prop // by name
	required []requirement
	items    Place
	values   Place // the schema of properties that are not named

	additional additional
	list       listType
	types      types
	hasType    bool
	nullable   bool
	preserve   bool
	embedded   bool
	fills      bool // a property has a default
	// filled are the properties with one, of props.
	filled []int32
	// below, in the node or under it, is
	anyLists    bool // a list of type set or map
	anyEmbedded bool // an embedded resource

	typeText string   // as messages have it
	keys     []string // of a list map
	// fallback is the default value with the defaults within it, or nil.
	fallback []byte

	// What few schemas have.
	enum   []enumValue
	listed *enumIndex // of many values
	bounds *bounds
	combo  *combination
	text   *textRules
}

type prop struct {
	name string
	at   Place
}

type requirement struct {
	name string
	prop int // its index in props, or -1
}

// bounds are limits of numbers, lengths and counts; nil is none.
type bounds struct {
	min, max, multipleOf       *float64
	exclusiveMin, exclusiveMax bool
	minItems, maxItems         *int64
	minProps, maxProps         *int64
}

// textRules are what a schema asks of strings.
type textRules struct {
	minLength, maxLength *int64
	format               string
	knownFormat          bool
	pattern              *pattern
}

// combination are the schemas that a schema combines.
type combination struct {
	allOf, anyOf, oneOf []Place
	not                 Place
}

type enumValue struct {
	value any       // as decoded
	doc   *tape.Doc // of objects and arrays
	shown string    // in messages
}

// find returns the index of a property. next is the index after the one found
// before: documents mostly have their keys in order.
func (n *node) find(d *tape.Doc, key tape.Ref, next int) int {
	if next < len(n.props) && d.IsText(key, n.props[next].name) {
		return next
	}
	if len(n.props) == 0 {
		return -1
	}
	return n.named(d.String(key))
}

// named is the number of the property of that name, -1 when there is none. They are in order.
func (n *node) named(name string) int {
	low, high := 0, len(n.props)
	for low < high {
		middle := (low + high) / 2
		if n.props[middle].name < name {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < len(n.props) && n.props[low].name == name {
		return low
	}
	return -1
}

// child returns the node of a member: that of the property, else that of
// values that are not named, else nowhere.
func (n *node) child(d *tape.Doc, key tape.Ref) Place {
	if i := n.find(d, key, 0); i >= 0 {
		return n.props[i].at
	}
	return n.values
}

// Lazy compiles a schema when it is first needed.
type Lazy struct {
	once    sync.Once
	make    func() (*Program, error)
	program *Program
	err     error
}

// NewLazy returns what calls compile on the first Get and keeps its results.
func NewLazy(compile func() (*Program, error)) *Lazy { return &Lazy{make: compile} }

// Get returns the program.
func (l *Lazy) Get() (*Program, error) {
	l.once.Do(func() {
		l.program, l.err = l.make()
		l.make = nil
	})
	return l.program, l.err
}

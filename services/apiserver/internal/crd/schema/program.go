package schema

import (
	"bytes"
	"sync"

	"binnacle/services/apiserver/internal/json/tape"
)

// Program is a compiled schema: a table of nodes, the root first.
type Program struct {
	nodes []node
	// defaults states that the program checks default values, which follow other rules than
	// resources.
	defaults bool
	// maxDefaults is the maximum size in bytes of the defaults that one object receives, without
	// those of nested objects. maxDefault is the maximum size of a default that replaces a null.
	maxDefaults, maxDefault int
	// maxCost is the maximum cost of one check: MaxMatched.
	maxCost int
}

// Weight returns the approximate maximum size in bytes of a JSON, YAML or CBOR document with its
// defaults filled in. Without defaults it is the size of the document. Weight accepts a nil
// Program.
func (p *Program) Weight(doc []byte, cbor bool) int {
	if p == nil || p.maxDefault == 0 {
		return len(doc)
	}
	objects, nulls := 0, 0
	for _, b := range doc {
		switch {
		case cbor && b>>5 == cborMap:
			objects++
		case cbor && b == cborNull:
			nulls++
		case !cbor && (b == '{' || b == '\n' || b == '\r'): // a line of YAML may be an object
			objects++
		}
	}
	if !cbor {
		nulls = bytes.Count(doc, []byte("null")) + bytes.Count(doc, []byte{'~'})
	}
	return min(MaxNormalized, len(doc)+p.maxDefaults*objects+p.maxDefault*nulls)
}

// The major type of a CBOR map, in the highest bits of a byte, and the encoding of null (RFC 8949,
// "Specification of the CBOR Encoding").
const cborMap, cborNull = 5, 0xf6

// NodeIndex is the index of a schema's node in a program.
type NodeIndex int32

const (
	noNode NodeIndex = -1
	root   NodeIndex = 0
)

// NoNode stands for a missing node. Root is the index of the node of the resource's schema.
const (
	NoNode = noNode
	Root   = root
)

// Property returns the node of a property's schema, or NoNode.
func (p *Program) Property(at NodeIndex, name string) NodeIndex {
	n := &p.nodes[at]
	if i := n.propertyIndex(name); i >= 0 {
		return n.props[i].node
	}
	return noNode
}

// Items returns the node of the items' schema, or NoNode.
func (p *Program) Items(at NodeIndex) NodeIndex { return p.nodes[at].items }

// Values returns the node of the schema of unnamed properties, or NoNode.
func (p *Program) Values(at NodeIndex) NodeIndex { return p.nodes[at].values }

// additional is the rule of a schema for properties that it does not name.
type additional uint8

const (
	unspecified additional = iota
	never                  // additionalProperties: false
	always                 // additionalProperties: true
	typed                  // additionalProperties: a schema
)

// listType is the value of x-kubernetes-list-type.
type listType uint8

const (
	listAtomic listType = iota // also the default
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

// node is a compiled schema.
type node struct {
	props    []prop // sorted by name
	required []requirement
	items    NodeIndex
	values   NodeIndex // schema of unnamed properties

	additional  additional
	list        listType
	types       types
	hasType     bool
	nullable    bool
	preserve    bool
	embedded    bool
	hasDefaults bool // a property has a default
	// filled holds the indexes in props of the properties with a default.
	filled []int32
	// containsSetsOrMaps is true if the node or a node below it is a list of type set or map.
	containsSetsOrMaps bool
	// containsEmbedded is true if the node or a node below it is an embedded resource.
	containsEmbedded bool

	typeText string   // as in messages
	keys     []string // of a list of type map
	// defaultValue is the default value with the defaults within it, or nil.
	defaultValue []byte

	// Fields that few schemas need.
	enum        []enumValue
	enumIndex   *enumIndex // index of a long enum
	bounds      *bounds
	combination *combination
	text        *textRules
}

// prop is a property that the schema names.
type prop struct {
	name string
	node NodeIndex
}

// requirement is a required property.
type requirement struct {
	name string
	prop int // its index in props, or -1
}

// bounds holds limits of numbers, lengths and counts. A nil field has no limit.
type bounds struct {
	min, max, multipleOf       *float64
	exclusiveMin, exclusiveMax bool
	minItems, maxItems         *int64
	minProps, maxProps         *int64
}

// textRules holds a schema's rules for strings.
type textRules struct {
	minLength, maxLength *int64
	format               string
	knownFormat          bool
	pattern              *pattern
}

// combination holds the schemas that a schema combines.
type combination struct {
	allOf, anyOf, oneOf []NodeIndex
	not                 NodeIndex
}

// enumValue is an allowed value.
type enumValue struct {
	value any       // decoded
	doc   *tape.Doc // for objects and arrays
	text  string    // as in messages
}

// find returns the index of a property, or -1. next is the index after the previous match, because
// documents usually have their keys in order.
func (n *node) find(d *tape.Doc, key tape.Ref, next int) int {
	if next < len(n.props) && d.IsText(key, n.props[next].name) {
		return next
	}
	if len(n.props) == 0 {
		return -1
	}
	return n.propertyIndex(d.String(key))
}

// propertyIndex returns the index of the property with the given name, or -1. Properties are
// sorted.
func (n *node) propertyIndex(name string) int {
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

// child returns the node of a member's schema: that of the property, or else that of unnamed
// values, which may be noNode.
func (n *node) child(d *tape.Doc, key tape.Ref) NodeIndex {
	if i := n.find(d, key, 0); i >= 0 {
		return n.props[i].node
	}
	return n.values
}

// Lazy compiles a schema on first use.
type Lazy struct {
	once    sync.Once
	compile func() (*Program, error)
	program *Program
	err     error
}

// NewLazy returns a Lazy that calls compile on the first Get and caches its results.
func NewLazy(compile func() (*Program, error)) *Lazy { return &Lazy{compile: compile} }

// Get returns the program.
func (l *Lazy) Get() (*Program, error) {
	l.once.Do(func() {
		l.program, l.err = l.compile()
		l.compile = nil
	})
	return l.program, l.err
}

// indexSet is a set of small numbers.
type indexSet struct {
	few  uint64   // bits of numbers below 64, if many is nil
	many []uint64 // bits of more numbers
}

// newIndexSet returns an empty set for numbers below n.
func newIndexSet(n int) indexSet {
	if n <= 64 {
		return indexSet{}
	}
	return indexSet{many: make([]uint64, (n+63)/64)}
}

func (m *indexSet) set(i int) {
	if m.many != nil {
		m.many[i/64] |= 1 << (i % 64)
	} else if i < 64 {
		m.few |= 1 << i
	}
}

func (m *indexSet) has(i int) bool {
	if m.many != nil {
		return m.many[i/64]&(1<<(i%64)) != 0
	}
	return i < 64 && m.few&(1<<i) != 0
}

package schema

import (
	"bytes"

	"binnacle/services/apiserver/internal/json/tape"
)

// Program is a compiled schema: a table of nodes, the root first.
type Program struct {
	nodes []node
	// checksDefaults states that the program checks default values, which follow other rules than
	// resources.
	checksDefaults bool
	// maxDefaultsPerObject is the maximum size in bytes of the defaults that one object receives,
	// without those of nested objects. maxNullDefault is the maximum size of a default that replaces
	// a null.
	maxDefaultsPerObject, maxNullDefault int
	// maxCost is the maximum cost of one check: MaxMatched.
	maxCost int
}

// EstimateSize returns the approximate maximum size in bytes of a JSON, YAML or CBOR document with its
// defaults filled in. Without defaults it is the size of the document. EstimateSize accepts a nil
// Program.
func (p *Program) EstimateSize(doc []byte, cbor bool) int {
	if p == nil || p.maxNullDefault == 0 {
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
	return min(MaxNormalized, len(doc)+p.maxDefaultsPerObject*objects+p.maxNullDefault*nulls)
}

// The major type of a CBOR map, in the highest bits of a byte, and the encoding of null (RFC 8949,
// "Specification of the CBOR Encoding").
const cborMap, cborNull = 5, 0xf6

// NodeIndex is the index of a schema's node in a program.
type NodeIndex int32

const (
	// NoNode stands for a missing node.
	NoNode NodeIndex = -1
	// Root is the index of the node of the resource's schema.
	Root NodeIndex = 0
)

// Property returns the node of a property's schema, or NoNode.
func (p *Program) Property(at NodeIndex, name string) NodeIndex {
	n := &p.nodes[at]
	if i := n.propertyIndex(name); i >= 0 {
		return n.props[i].node
	}
	return NoNode
}

// Items returns the node of the items' schema, or NoNode.
func (p *Program) Items(at NodeIndex) NodeIndex { return p.nodes[at].items }

// Values returns the node of the schema of unnamed properties, or NoNode.
func (p *Program) Values(at NodeIndex) NodeIndex { return p.nodes[at].values }

// additionalRule is the rule of a schema for properties that it does not name.
type additionalRule uint8

const (
	additionalUnspecified additionalRule = iota
	additionalForbidden                  // additionalProperties: false
	additionalAllowed                    // additionalProperties: true
	additionalSchema                     // additionalProperties: a schema
)

// listType is the value of x-kubernetes-list-type.
type listType uint8

const (
	listAtomic listType = iota // also the default
	listSet
	listMap
)

// typeSet is a set of JSON types.
type typeSet uint8

const (
	typeObject typeSet = 1 << iota
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

	additional       additionalRule
	listType         listType // x-kubernetes-list-type
	types            typeSet
	hasType          bool
	nullable         bool
	preservesUnknown bool // x-kubernetes-preserve-unknown-fields
	isEmbedded       bool // x-kubernetes-embedded-resource
	hasDefaults      bool // a property has a default
	// defaultedProps holds the indexes in props of the properties with a default.
	defaultedProps []int32
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
func (n *node) find(doc *tape.Doc, key tape.Ref, next int) int {
	if next < len(n.props) && doc.IsText(key, n.props[next].name) {
		return next
	}
	if len(n.props) == 0 {
		return -1
	}
	return n.propertyIndex(doc.String(key))
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

// child returns the node of a member's schema. For a property that the schema does not name, it
// returns the node of unnamed properties, which may be NoNode.
func (n *node) child(d *tape.Doc, key tape.Ref) NodeIndex {
	if i := n.find(d, key, 0); i >= 0 {
		return n.props[i].node
	}
	return n.values
}

package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Compile compiles the schema of a definition's version. The program of a nil schema knows no
// field. The schema should be structural. Compile ignores everything that a structural schema
// cannot have. It returns an error for a default or an enum that is not valid JSON.
func Compile(s *v1.JSONSchemaProps) (*Program, error) {
	return new(PatternBudget).Compile(s)
}

// Compile is the function Compile for a program whose patterns use this budget.
func (b *PatternBudget) Compile(s *v1.JSONSchemaProps) (*Program, error) { return compile(s, b, false) }

// compile compiles a schema. With defaults, the program checks default values.
func compile(s *v1.JSONSchemaProps, budget *PatternBudget, defaults bool) (*Program, error) {
	if s == nil {
		s = &v1.JSONSchemaProps{}
	}
	c := compiler{program: &Program{checksDefaults: defaults, maxCost: MaxMatched}}
	c.budget = newBudgetShare(budget, c.program)
	if _, err := c.addNode(s, true); err != nil {
		return nil, err
	}
	c.program.nodes = slices.Clip(c.program.nodes)
	if err := c.setDefaults(s, Root, outside); err != nil {
		return nil, err
	}
	c.program.measureDefaults()
	return c.program, nil
}

// measureDefaults computes maxDefaults and maxDefault.
func (p *Program) measureDefaults() {
	for i := range p.nodes {
		filled := 0
		for _, prop := range p.nodes[i].props {
			if data := p.nodes[prop.node].defaultValue; data != nil {
				filled += len(prop.name) + len(data) + len(`"":,`)
			}
		}
		p.maxDefaultsPerObject, p.maxNullDefault = max(p.maxDefaultsPerObject, filled), max(p.maxNullDefault, len(p.nodes[i].defaultValue))
	}
}

// compiler compiles one schema.
type compiler struct {
	program *Program
	budget  *budgetShare
}

// addNode appends the node of a schema and those of the schemas within it. structural states that
// the schema is not within allOf, anyOf, oneOf or not.
func (c *compiler) addNode(s *v1.JSONSchemaProps, structural bool) (NodeIndex, error) {
	// 1. Reserve the index: a node comes before the nodes below it.
	at := NodeIndex(len(c.program.nodes))
	c.program.nodes = append(c.program.nodes, node{items: NoNode, values: NoNode})

	// 2. Compile the keywords of the schema itself.
	n := node{
		items:            NoNode,
		values:           NoNode,
		nullable:         s.Nullable,
		isEmbedded:       s.XEmbeddedResource,
		keys:             s.XListMapKeys,
		preservesUnknown: s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields,
	}
	n.containsEmbedded = n.isEmbedded
	n.listType = listTypeOf(s)
	n.containsSetsOrMaps = n.listType == listSet || n.listType == listMap
	c.setTypes(&n, s)
	n.bounds = boundsOf(s)
	n.text = c.textOf(s)
	var err error
	if n.enum, err = enumOf(s); err != nil {
		return NoNode, err
	}
	n.enumIndex = newEnumIndex(n.enum)

	// 3. Compile the schemas within it.
	if err := c.addChildren(&n, s, structural); err != nil {
		return NoNode, err
	}
	if n.combination, err = c.addCombination(s); err != nil {
		return NoNode, err
	}

	// 4. Resolve the required properties, whose indexes are known now.
	for _, name := range s.Required {
		n.required = append(n.required, requirement{name: name, prop: n.propertyIndex(name)})
	}
	c.program.nodes[at] = n
	return at, nil
}

// listTypeOf returns the list type of a schema.
func listTypeOf(s *v1.JSONSchemaProps) listType {
	if s.XListType == nil {
		return listAtomic
	}
	switch *s.XListType {
	case "set":
		return listSet
	case "map":
		return listMap
	}
	return listAtomic
}

// setTypes sets the types that a value may have.
func (c *compiler) setTypes(n *node, s *v1.JSONSchemaProps) {
	n.typeText = s.Type
	switch s.Type {
	case "object":
		n.types = typeObject
	case "array":
		n.types = typeArray
	case "string":
		n.types = typeString
	case "integer":
		n.types = typeInteger
	case "number":
		n.types = typeNumber
	case "boolean":
		n.types = typeBoolean
	case "null":
		n.types = typeNull
	}
	if s.XIntOrString && !c.program.checksDefaults {
		n.types = typeInteger | typeString
		n.typeText = "integer,string"
	}
	n.hasType = n.typeText != ""
}

// boundsOf returns the bounds of a schema, or nil.
func boundsOf(s *v1.JSONSchemaProps) *bounds {
	boundsNumbers := s.Minimum != nil || s.Maximum != nil || s.MultipleOf != nil
	boundsItems := s.MinItems != nil || s.MaxItems != nil
	boundsProperties := s.MinProperties != nil || s.MaxProperties != nil
	if !boundsNumbers && !boundsItems && !boundsProperties {
		return nil
	}
	return &bounds{
		min:          s.Minimum,
		max:          s.Maximum,
		multipleOf:   s.MultipleOf,
		exclusiveMin: s.ExclusiveMinimum,
		exclusiveMax: s.ExclusiveMaximum,
		minItems:     s.MinItems,
		maxItems:     s.MaxItems,
		minProps:     s.MinProperties,
		maxProps:     s.MaxProperties,
	}
}

// textOf returns the rules for strings, or nil.
func (c *compiler) textOf(s *v1.JSONSchemaProps) *textRules {
	format := s.Format
	if !c.program.checksDefaults && !supportedFormats[strings.ReplaceAll(format, "-", "")] {
		format = ""
	}
	if format == "" && s.MinLength == nil && s.MaxLength == nil && s.Pattern == "" {
		return nil
	}
	t := &textRules{
		minLength:   s.MinLength,
		maxLength:   s.MaxLength,
		format:      format,
		knownFormat: strfmt.Default.ContainsName(format),
	}
	if s.Pattern != "" {
		t.pattern = &pattern{text: s.Pattern, budget: c.budget}
	}
	return t
}

// enumOf decodes the allowed values of a schema.
func enumOf(s *v1.JSONSchemaProps) ([]enumValue, error) {
	var list []enumValue
	for _, e := range s.Enum {
		raw := e.Raw
		if len(raw) == 0 {
			raw = []byte("null")
		}
		d, err := tape.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("enum: %w", err)
		}
		v := enumValue{value: d.Any(tape.Root)}
		switch d.Kind(tape.Root) {
		case tape.Object, tape.Array:
			v.doc = d
		}
		if text, ok := v.value.(string); ok {
			v.text = text
		} else {
			encoded, err := json.Marshal(v.value)
			if err != nil {
				return nil, fmt.Errorf("enum: %w", err)
			}
			v.text = string(encoded)
		}
		list = append(list, v)
	}
	return list, nil
}

// addChildren adds the schemas of properties, additional properties and items.
func (c *compiler) addChildren(n *node, s *v1.JSONSchemaProps, structural bool) error {
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		sub := s.Properties[name]
		child, err := c.addNode(&sub, structural)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		n.props = append(n.props, prop{name: name, node: child})
		c.inherit(n, child)
		n.hasDefaults = n.hasDefaults || structural && hasDefault(&sub)
	}
	if a := s.AdditionalProperties; a != nil && (structural || !c.program.checksDefaults) {
		switch {
		case a.Schema != nil:
			n.additional = additionalSchema
			child, err := c.addNode(a.Schema, structural)
			if err != nil {
				return fmt.Errorf("additionalProperties: %w", err)
			}
			n.values = child
			c.inherit(n, child)
		case a.Allows:
			n.additional = additionalAllowed
		default:
			n.additional = additionalForbidden
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		child, err := c.addNode(s.Items.Schema, structural)
		if err != nil {
			return fmt.Errorf("items: %w", err)
		}
		n.items = child
		c.inherit(n, child)
	}
	return nil
}

// inherit sets what n contains because the node from is below it.
func (c *compiler) inherit(n *node, from NodeIndex) {
	sub := &c.program.nodes[from]
	n.containsSetsOrMaps = n.containsSetsOrMaps || sub.containsSetsOrMaps
	n.containsEmbedded = n.containsEmbedded || sub.containsEmbedded
}

// hasDefault reports whether a schema has a default other than null.
func hasDefault(s *v1.JSONSchemaProps) bool {
	return s.Default != nil && len(s.Default.Raw) > 0 && string(s.Default.Raw) != "null"
}

// addCombination compiles the schemas of allOf, anyOf, oneOf and not.
func (c *compiler) addCombination(s *v1.JSONSchemaProps) (*combination, error) {
	if len(s.AllOf) == 0 && len(s.AnyOf) == 0 && len(s.OneOf) == 0 && s.Not == nil {
		return nil, nil
	}
	m := &combination{not: NoNode}
	var err error
	if m.allOf, err = c.addAll(s.AllOf); err != nil {
		return nil, fmt.Errorf("allOf: %w", err)
	}
	if m.anyOf, err = c.addAll(s.AnyOf); err != nil {
		return nil, fmt.Errorf("anyOf: %w", err)
	}
	if m.oneOf, err = c.addAll(s.OneOf); err != nil {
		return nil, fmt.Errorf("oneOf: %w", err)
	}
	if s.Not != nil {
		if m.not, err = c.addNode(s.Not, false); err != nil {
			return nil, fmt.Errorf("not: %w", err)
		}
	}
	return m, nil
}

// addAll compiles a list of schemas.
func (c *compiler) addAll(schemas []v1.JSONSchemaProps) ([]NodeIndex, error) {
	var nodes []NodeIndex
	for i := range schemas {
		node, err := c.addNode(&schemas[i], false)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// setDefaults sets the default values, innermost first. Each default is normalized by its own
// schema, so that it can be inserted unchanged.
func (c *compiler) setDefaults(s *v1.JSONSchemaProps, at NodeIndex, m metadataPosition) error {
	n := &c.program.nodes[at]
	for i, p := range n.props {
		sub := s.Properties[p.name]
		if err := c.setDefaults(&sub, p.node, m.child(s, p.name)); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if c.program.nodes[p.node].defaultValue != nil {
			n.defaultedProps = append(n.defaultedProps, int32(i))
		}
	}
	if n.values != NoNode {
		if err := c.setDefaults(s.AdditionalProperties.Schema, n.values, m.child(s, "")); err != nil {
			return fmt.Errorf("additionalProperties: %w", err)
		}
	}
	if n.items != NoNode {
		if err := c.setDefaults(s.Items.Schema, n.items, m.child(s, "")); err != nil {
			return fmt.Errorf("items: %w", err)
		}
	}
	if !hasDefault(s) {
		return nil
	}
	normalized, err := c.program.normalizeDefault(at, s.Default.Raw, m)
	if err != nil {
		return fmt.Errorf("default: %w", err)
	}
	n.defaultValue = normalized
	return nil
}

// supportedFormats holds the formats that Kubernetes 1.33 checks, without dashes.
var supportedFormats = map[string]bool{
	"bsonobjectid": true, "uri": true, "email": true, "hostname": true, "ipv4": true, "ipv6": true, "cidr": true,
	"mac": true, "uuid": true, "uuid3": true, "uuid4": true, "uuid5": true, "isbn": true, "isbn10": true,
	"isbn13": true, "creditcard": true, "ssn": true, "hexcolor": true, "rgbcolor": true, "byte": true,
	"password": true, "date": true, "duration": true, "datetime": true,
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

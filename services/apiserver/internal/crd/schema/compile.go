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
func compile(props *v1.JSONSchemaProps, budget *PatternBudget, defaults bool) (*Program, error) {
	if props == nil {
		props = &v1.JSONSchemaProps{}
	}
	builder := compiler{program: &Program{checksDefaults: defaults, maxCost: MaxMatched}}
	builder.budget = newBudgetShare(budget, builder.program)
	if _, err := builder.addNode(props, true); err != nil {
		return nil, err
	}
	builder.program.nodes = slices.Clip(builder.program.nodes)
	if err := builder.setDefaults(props, Root, outside); err != nil {
		return nil, err
	}
	builder.program.measureDefaults()
	return builder.program, nil
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
func (c *compiler) addNode(schemaProps *v1.JSONSchemaProps, structural bool) (NodeIndex, error) {
	// 1. Reserve the index: a node comes before the nodes below it.
	at := NodeIndex(len(c.program.nodes))
	c.program.nodes = append(c.program.nodes, node{items: NoNode, values: NoNode})

	// 2. Compile the keywords of the schema itself.
	compiled := node{
		items:            NoNode,
		values:           NoNode,
		nullable:         schemaProps.Nullable,
		isEmbedded:       schemaProps.XEmbeddedResource,
		keys:             schemaProps.XListMapKeys,
		preservesUnknown: schemaProps.XPreserveUnknownFields != nil && *schemaProps.XPreserveUnknownFields,
	}
	compiled.containsEmbedded = compiled.isEmbedded
	compiled.listType = listTypeOf(schemaProps)
	compiled.containsSetsOrMaps = compiled.listType == listSet || compiled.listType == listMap
	c.setTypes(&compiled, schemaProps)
	compiled.bounds = boundsOf(schemaProps)
	compiled.text = c.textOf(schemaProps)
	var err error
	if compiled.enum, err = enumOf(schemaProps); err != nil {
		return NoNode, err
	}
	compiled.enumIndex = newEnumIndex(compiled.enum)

	// 3. Compile the schemas within it.
	if err := c.addChildren(&compiled, schemaProps, structural); err != nil {
		return NoNode, err
	}
	if compiled.combination, err = c.addCombination(schemaProps); err != nil {
		return NoNode, err
	}

	// 4. Resolve the required properties, whose indexes are known now.
	for _, name := range schemaProps.Required {
		compiled.required = append(compiled.required, requirement{name: name, prop: compiled.propertyIndex(name)})
	}
	c.program.nodes[at] = compiled
	return at, nil
}

// listTypeOf returns the list type of a schema.
func listTypeOf(props *v1.JSONSchemaProps) listType {
	if props.XListType == nil {
		return listAtomic
	}
	switch *props.XListType {
	case "set":
		return listSet
	case "map":
		return listMap
	}
	return listAtomic
}

// setTypes sets the types that a value may have.
func (c *compiler) setTypes(schemaNode *node, schemaProps *v1.JSONSchemaProps) {
	schemaNode.typeText = schemaProps.Type
	switch schemaProps.Type {
	case "object":
		schemaNode.types = typeObject
	case "array":
		schemaNode.types = typeArray
	case "string":
		schemaNode.types = typeString
	case "integer":
		schemaNode.types = typeInteger
	case "number":
		schemaNode.types = typeNumber
	case "boolean":
		schemaNode.types = typeBoolean
	case "null":
		schemaNode.types = typeNull
	}
	if schemaProps.XIntOrString && !c.program.checksDefaults {
		schemaNode.types = typeInteger | typeString
		schemaNode.typeText = "integer,string"
	}
	schemaNode.hasType = schemaNode.typeText != ""
}

// boundsOf returns the bounds of a schema, or nil.
func boundsOf(schemaProps *v1.JSONSchemaProps) *bounds {
	boundsNumbers := schemaProps.Minimum != nil || schemaProps.Maximum != nil || schemaProps.MultipleOf != nil
	boundsItems := schemaProps.MinItems != nil || schemaProps.MaxItems != nil
	boundsProperties := schemaProps.MinProperties != nil || schemaProps.MaxProperties != nil
	if !boundsNumbers && !boundsItems && !boundsProperties {
		return nil
	}
	return &bounds{
		min:          schemaProps.Minimum,
		max:          schemaProps.Maximum,
		multipleOf:   schemaProps.MultipleOf,
		exclusiveMin: schemaProps.ExclusiveMinimum,
		exclusiveMax: schemaProps.ExclusiveMaximum,
		minItems:     schemaProps.MinItems,
		maxItems:     schemaProps.MaxItems,
		minProps:     schemaProps.MinProperties,
		maxProps:     schemaProps.MaxProperties,
	}
}

// textOf returns the rules for strings, or nil.
func (c *compiler) textOf(schemaProps *v1.JSONSchemaProps) *textRules {
	format := schemaProps.Format
	if !c.program.checksDefaults && !supportedFormats[strings.ReplaceAll(format, "-", "")] {
		format = ""
	}
	if format == "" && schemaProps.MinLength == nil && schemaProps.MaxLength == nil && schemaProps.Pattern == "" {
		return nil
	}
	textRule := &textRules{
		minLength:   schemaProps.MinLength,
		maxLength:   schemaProps.MaxLength,
		format:      format,
		knownFormat: strfmt.Default.ContainsName(format),
	}
	if schemaProps.Pattern != "" {
		textRule.pattern = &pattern{text: schemaProps.Pattern, budget: c.budget}
	}
	return textRule
}

// enumOf decodes the allowed values of a schema.
func enumOf(s *v1.JSONSchemaProps) ([]enumValue, error) {
	var list []enumValue
	for _, e := range s.Enum {
		raw := e.Raw
		if len(raw) == 0 {
			raw = []byte("null")
		}
		doc, err := tape.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("enum: %w", err)
		}
		enum := enumValue{value: doc.Any(tape.Root)}
		switch doc.Kind(tape.Root) {
		case tape.Object, tape.Array:
			enum.doc = doc
		}
		if text, ok := enum.value.(string); ok {
			enum.text = text
		} else {
			encoded, err := json.Marshal(enum.value)
			if err != nil {
				return nil, fmt.Errorf("enum: %w", err)
			}
			enum.text = string(encoded)
		}
		list = append(list, enum)
	}
	return list, nil
}

// addChildren adds the schemas of properties, additional properties and items.
func (c *compiler) addChildren(schemaNode *node, schemaProps *v1.JSONSchemaProps, structural bool) error {
	names := make([]string, 0, len(schemaProps.Properties))
	for name := range schemaProps.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		sub := schemaProps.Properties[name]
		child, err := c.addNode(&sub, structural)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		schemaNode.props = append(schemaNode.props, prop{name: name, node: child})
		c.inherit(schemaNode, child)
		schemaNode.hasDefaults = schemaNode.hasDefaults || structural && hasDefault(&sub)
	}
	if additional := schemaProps.AdditionalProperties; additional != nil && (structural || !c.program.checksDefaults) {
		switch {
		case additional.Schema != nil:
			schemaNode.additional = additionalSchema
			child, err := c.addNode(additional.Schema, structural)
			if err != nil {
				return fmt.Errorf("additionalProperties: %w", err)
			}
			schemaNode.values = child
			c.inherit(schemaNode, child)
		case additional.Allows:
			schemaNode.additional = additionalAllowed
		default:
			schemaNode.additional = additionalForbidden
		}
	}
	if schemaProps.Items != nil && schemaProps.Items.Schema != nil {
		child, err := c.addNode(schemaProps.Items.Schema, structural)
		if err != nil {
			return fmt.Errorf("items: %w", err)
		}
		schemaNode.items = child
		c.inherit(schemaNode, child)
	}
	return nil
}

// inherit sets what schemaNode contains because the node from is below it.
func (c *compiler) inherit(schemaNode *node, from NodeIndex) {
	sub := &c.program.nodes[from]
	schemaNode.containsSetsOrMaps = schemaNode.containsSetsOrMaps || sub.containsSetsOrMaps
	schemaNode.containsEmbedded = schemaNode.containsEmbedded || sub.containsEmbedded
}

// hasDefault reports whether a schema has a default other than null.
func hasDefault(s *v1.JSONSchemaProps) bool {
	return s.Default != nil && len(s.Default.Raw) > 0 && string(s.Default.Raw) != "null"
}

// addCombination compiles the schemas of allOf, anyOf, oneOf and not.
func (c *compiler) addCombination(schemaProps *v1.JSONSchemaProps) (*combination, error) {
	if len(schemaProps.AllOf) == 0 && len(schemaProps.AnyOf) == 0 && len(schemaProps.OneOf) == 0 && schemaProps.Not == nil {
		return nil, nil
	}
	branches := &combination{not: NoNode}
	var err error
	if branches.allOf, err = c.addAll(schemaProps.AllOf); err != nil {
		return nil, fmt.Errorf("allOf: %w", err)
	}
	if branches.anyOf, err = c.addAll(schemaProps.AnyOf); err != nil {
		return nil, fmt.Errorf("anyOf: %w", err)
	}
	if branches.oneOf, err = c.addAll(schemaProps.OneOf); err != nil {
		return nil, fmt.Errorf("oneOf: %w", err)
	}
	if schemaProps.Not != nil {
		if branches.not, err = c.addNode(schemaProps.Not, false); err != nil {
			return nil, fmt.Errorf("not: %w", err)
		}
	}
	return branches, nil
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
func (c *compiler) setDefaults(schemaProps *v1.JSONSchemaProps, at NodeIndex, position metadataPosition) error {
	schemaNode := &c.program.nodes[at]
	for i, p := range schemaNode.props {
		sub := schemaProps.Properties[p.name]
		if err := c.setDefaults(&sub, p.node, position.child(schemaProps, p.name)); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if c.program.nodes[p.node].defaultValue != nil {
			schemaNode.defaultedProps = append(schemaNode.defaultedProps, int32(i))
		}
	}
	if schemaNode.values != NoNode {
		if err := c.setDefaults(schemaProps.AdditionalProperties.Schema, schemaNode.values, position.child(schemaProps, "")); err != nil {
			return fmt.Errorf("additionalProperties: %w", err)
		}
	}
	if schemaNode.items != NoNode {
		if err := c.setDefaults(schemaProps.Items.Schema, schemaNode.items, position.child(schemaProps, "")); err != nil {
			return fmt.Errorf("items: %w", err)
		}
	}
	if !hasDefault(schemaProps) {
		return nil
	}
	normalized, err := c.program.normalizeDefault(at, schemaProps.Default.Raw, position)
	if err != nil {
		return fmt.Errorf("default: %w", err)
	}
	schemaNode.defaultValue = normalized
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

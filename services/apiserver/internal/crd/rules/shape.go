package rules

import (
	"maps"
	"slices"
	"strings"

	"binnacle/libs/celenv"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// form is the representation of a schema's values in rules.
type form uint8

const (
	formUnknown form = iota // a schema without type
	formOpaque              // any value, preserved
	formObject              // an object with properties
	formMap                 // a map with values of one schema
	formEmpty               // an object without a schema for its members
	formList
	formText
	formBytes
	formDuration
	formDate
	formTime
	formInteger
	formNumber
	formBool
	formIntOrText
)

// listType is x-kubernetes-list-type.
type listType uint8

const (
	atomicList listType = iota
	setList
	keyedList
)

// shape holds the parts of a schema that rules need to read its values.
type shape struct {
	form     form
	nullable bool
	typeName string
	props    []propShape // sorted by name
	escaped  []int32     // indexes of props sorted by escaped name
	values   *shape      // of maps and lists
	list     listType
	keys     []string
}

// propShape is the shape of a property. escaped is its name in CEL.
type propShape struct {
	name    string
	escaped string
	shape   *shape
}

// shapeOf returns the shape of a schema. root adds the type and metadata of resources.
func shapeOf(s *v1.JSONSchemaProps, root bool) *shape {
	h := &shape{nullable: s.Nullable, typeName: s.Type, form: formOf(s, root)}
	switch h.form {
	case formObject:
		props := s.Properties
		if root {
			props = withMeta(s)
		}
		for _, name := range slices.Sorted(maps.Keys(props)) {
			sub := props[name]
			escaped, ok := celenv.Escape(name)
			if !ok {
				escaped = name
			}
			h.props = append(h.props, propShape{name: name, escaped: escaped, shape: shapeOf(&sub, sub.XEmbeddedResource)})
			h.escaped = append(h.escaped, int32(len(h.escaped)))
		}
		slices.SortStableFunc(h.escaped, func(a, b int32) int { return strings.Compare(h.props[a].escaped, h.props[b].escaped) })
	case formMap:
		h.values = shapeOf(s.AdditionalProperties.Schema, s.AdditionalProperties.Schema.XEmbeddedResource)
	case formList:
		h.values = shapeOf(s.Items.Schema, s.Items.Schema.XEmbeddedResource)
		h.keys = s.XListMapKeys
		if s.XListType != nil {
			switch *s.XListType {
			case "set":
				h.list = setList
			case "map":
				h.list = keyedList
			}
		}
	}
	return h
}

// formOf returns the form of a schema's values.
func formOf(s *v1.JSONSchemaProps, root bool) form {
	preserved := s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
	if s.XIntOrString {
		return formIntOrText
	}
	switch s.Type {
	case "object":
		switch {
		case root || len(s.Properties) > 0:
			return formObject
		case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
			return formMap
		}
		return formEmpty
	case "array":
		if s.Items == nil || s.Items.Schema == nil {
			return formUnknown
		}
		return formList
	case "string":
		return textForm(s.Format)
	case "integer":
		return formInteger
	case "number":
		return formNumber
	case "boolean":
		return formBool
	}
	if preserved {
		return formOpaque
	}
	return formUnknown
}

// textForm returns the form of a string by its format.
func textForm(format string) form {
	switch format {
	case "byte":
		return formBytes
	case "duration":
		return formDuration
	case "date":
		return formDate
	case "date-time":
		return formTime
	}
	return formText
}

// below returns the shape of a property, or of unnamed values if name is empty. s is its schema.
func (h *shape) below(name string, s *v1.JSONSchemaProps) *shape {
	var sub *shape
	if name == "" {
		sub = h.values
	} else if h.form == formObject {
		sub = h.named(name)
	}
	if sub == nil {
		sub = shapeOf(s, s.XEmbeddedResource)
	}
	return sub
}

// find returns the property with an escaped name.
func (h *shape) find(escaped string) (*propShape, bool) {
	i, ok := slices.BinarySearchFunc(h.escaped, escaped, func(p int32, escaped string) int { return strings.Compare(h.props[p].escaped, escaped) })
	if !ok {
		return nil, false
	}
	return &h.props[h.escaped[i]], true
}

// named returns the shape of a member by its unescaped name.
func (h *shape) named(name string) *shape {
	if h.form == formMap {
		return h.values
	}
	i, ok := slices.BinarySearchFunc(h.props, name, func(p propShape, name string) int { return strings.Compare(p.name, name) })
	if !ok {
		return nil
	}
	return h.props[i].shape
}

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
	formString
	formBytes
	formDuration
	formDate
	formDateTime
	formInteger
	formNumber
	formBool
	formIntOrString
)

// listType is x-kubernetes-list-type.
type listType uint8

const (
	atomicList listType = iota
	setList
	keyedList
)

// schemaShape holds the parts of a schema that rules need to read its values. It does not refer to
// the schema, which is large.
type schemaShape struct {
	form       form
	nullable   bool
	typeName   string
	properties []propertyShape // sorted by name
	byCELName  []int32         // indexes in properties, sorted by celName
	values     *schemaShape    // of maps and lists
	listType   listType
	keys       []string
}

// propertyShape is the shape of a property. celName is its escaped name, by which rules refer to
// it.
type propertyShape struct {
	name    string
	celName string
	shape   *schemaShape
}

// shapeOf returns the shape of a schema. root adds the type and metadata of resources.
func shapeOf(schemaProps *v1.JSONSchemaProps, root bool) *schemaShape {
	shape := &schemaShape{nullable: schemaProps.Nullable, typeName: schemaProps.Type, form: formOf(schemaProps, root)}
	switch shape.form {
	case formObject:
		props := schemaProps.Properties
		if root {
			props = withObjectFields(schemaProps)
		}
		for _, name := range slices.Sorted(maps.Keys(props)) {
			sub := props[name]
			escaped, ok := celenv.Escape(name)
			if !ok {
				escaped = name
			}
			shape.properties = append(shape.properties,
				propertyShape{name: name, celName: escaped, shape: shapeOf(&sub, sub.XEmbeddedResource)})
			shape.byCELName = append(shape.byCELName, int32(len(shape.byCELName)))
		}
		slices.SortStableFunc(shape.byCELName, func(a, b int32) int {
			return strings.Compare(shape.properties[a].celName, shape.properties[b].celName)
		})
	case formMap:
		shape.values = shapeOf(schemaProps.AdditionalProperties.Schema, schemaProps.AdditionalProperties.Schema.XEmbeddedResource)
	case formList:
		shape.values = shapeOf(schemaProps.Items.Schema, schemaProps.Items.Schema.XEmbeddedResource)
		shape.keys = schemaProps.XListMapKeys
		if schemaProps.XListType != nil {
			switch *schemaProps.XListType {
			case "set":
				shape.listType = setList
			case "map":
				shape.listType = keyedList
			}
		}
	}
	return shape
}

// formOf returns the form of a schema's values.
func formOf(schemaProps *v1.JSONSchemaProps, root bool) form {
	preserved := schemaProps.XPreserveUnknownFields != nil && *schemaProps.XPreserveUnknownFields
	if schemaProps.XIntOrString {
		return formIntOrString
	}
	switch schemaProps.Type {
	case "object":
		switch {
		case root || len(schemaProps.Properties) > 0:
			return formObject
		case schemaProps.AdditionalProperties != nil && schemaProps.AdditionalProperties.Schema != nil:
			return formMap
		}
		return formEmpty
	case "array":
		if schemaProps.Items == nil || schemaProps.Items.Schema == nil {
			return formUnknown
		}
		return formList
	case "string":
		return stringForm(schemaProps.Format)
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

// stringForm returns the form of a string by its format.
func stringForm(format string) form {
	switch format {
	case "byte":
		return formBytes
	case "duration":
		return formDuration
	case "date":
		return formDate
	case "date-time":
		return formDateTime
	}
	return formString
}

// childShape returns the shape of a property, or of unnamed values if name is empty. props is
// its schema.
func (shape *schemaShape) childShape(name string, props *v1.JSONSchemaProps) *schemaShape {
	var sub *schemaShape
	if name == "" {
		sub = shape.values
	} else if shape.form == formObject {
		sub = shape.memberShape(name)
	}
	if sub == nil {
		sub = shapeOf(props, props.XEmbeddedResource)
	}
	return sub
}

// property returns the property with an escaped name.
func (s *schemaShape) property(escaped string) (*propertyShape, bool) {
	i, ok := slices.BinarySearchFunc(s.byCELName, escaped, func(index int32, escaped string) int {
		return strings.Compare(s.properties[index].celName, escaped)
	})
	if !ok {
		return nil, false
	}
	return &s.properties[s.byCELName[i]], true
}

// memberShape returns the shape of a member by its unescaped name.
func (s *schemaShape) memberShape(name string) *schemaShape {
	if s.form == formMap {
		return s.values
	}
	i, ok := slices.BinarySearchFunc(s.properties, name, func(p propertyShape, name string) int {
		return strings.Compare(p.name, name)
	})
	if !ok {
		return nil
	}
	return s.properties[i].shape
}

package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/json/jsontext"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Sizes of JSON text that estimates assume, in bytes and with quotes.
const (
	requestSize      = 3 << 20 // the largest request
	minString        = 2
	minNumber        = 1
	minBool          = 4
	minDuration      = 3
	minTime          = 21
	dateSize         = 12
	maxTime          = 32
	maxDuration      = 32
	emptyObject      = 2
	bytesPerRune     = 4
	memberOverhead   = 4 // quotes, colon and comma
	mapEntryOverhead = 6 // the shortest key with quotes, colon and comma
)

// decl declares the values of a schema to CEL: their type and their maximum size.
type decl struct {
	celType      *cel.Type
	fields       map[string]*decl     // of objects, by escaped name
	fieldTypes   map[string]*cel.Type // of fields
	objectFields []*decl              // the fields that are or contain objects
	key          *decl                // of maps
	elem         *decl                // of lists and maps
	maxSize      int64                // maximum number of elements or bytes
	minBytes     int64                // minimum size of the JSON text
}

// scalarDecl returns the declaration of a type without elements.
func scalarDecl(t *cel.Type, min, max int64) *decl {
	return &decl{celType: t, minBytes: min, maxSize: max}
}

// declare returns the type of a schema, or nil if CEL does not see its values. root states that the
// schema describes a resource or an embedded one, which always has a type and metadata.
func declare(schemaProps *v1.JSONSchemaProps, root bool) *decl {
	if schemaProps == nil {
		return nil
	}
	if schemaProps.XIntOrString {
		return scalarDecl(cel.DynType, minNumber, requestSize-minString)
	}
	switch schemaProps.Type {
	case "array":
		return declareList(schemaProps)
	case "object":
		if schemaProps.AdditionalProperties != nil && schemaProps.AdditionalProperties.Schema != nil {
			return declareMap(schemaProps)
		}
		return declareObject(schemaProps, root)
	case "string":
		return declareString(schemaProps)
	case "boolean":
		return scalarDecl(cel.BoolType, minBool, 0)
	case "number":
		return scalarDecl(cel.DoubleType, minNumber, 0)
	case "integer":
		return scalarDecl(cel.IntType, minNumber, 0)
	}
	return nil
}

// atLeastZero returns n, or 0 for a negative limit.
func atLeastZero(n int64) int64 { return max(n, 0) }

// declareList returns the type of an array, or nil if CEL does not see it.
func declareList(props *v1.JSONSchemaProps) *decl {
	if props.Items == nil || props.Items.Schema == nil {
		return nil
	}
	elem := declare(props.Items.Schema, props.Items.Schema.XEmbeddedResource)
	if elem == nil {
		return nil
	}
	declaration := &decl{celType: cel.ListType(elem.celType), elem: elem, minBytes: emptyObject}
	if props.MaxItems != nil {
		declaration.maxSize = atLeastZero(*props.MaxItems)
	} else {
		declaration.maxSize = (requestSize - emptyObject) / (elem.minBytes + 1)
	}
	return declaration
}

// declareMap returns the type of an object with values of one schema.
func declareMap(schemaProps *v1.JSONSchemaProps) *decl {
	values := schemaProps.AdditionalProperties.Schema
	elem := declare(values, values.XEmbeddedResource)
	if elem == nil {
		return nil
	}
	declaration := &decl{
		celType:  cel.MapType(cel.StringType, elem.celType),
		key:      scalarDecl(cel.StringType, minString, 0),
		elem:     elem,
		minBytes: emptyObject,
	}
	if schemaProps.MaxProperties != nil {
		declaration.maxSize = atLeastZero(*schemaProps.MaxProperties)
	} else {
		declaration.maxSize = (requestSize - emptyObject) / (elem.minBytes + mapEntryOverhead)
	}
	return declaration
}

// declareString returns the type of a string by its format.
func declareString(schemaProps *v1.JSONSchemaProps) *decl {
	maxBytes := int64(requestSize - minString)
	switch schemaProps.Format {
	case "byte":
		if schemaProps.MaxLength != nil {
			maxBytes = atLeastZero(*schemaProps.MaxLength)
		}
		return scalarDecl(cel.BytesType, minString, maxBytes)
	case "duration":
		return scalarDecl(cel.DurationType, minDuration, maxDuration)
	case "date":
		return scalarDecl(cel.TimestampType, dateSize, dateSize)
	case "date-time":
		return scalarDecl(cel.TimestampType, minTime, maxTime)
	}
	switch {
	case schemaProps.MaxLength != nil:
		maxBytes = atLeastZero(*schemaProps.MaxLength) * bytesPerRune
	case len(schemaProps.Enum) > 0:
		maxBytes = 0
		for _, e := range schemaProps.Enum {
			if text, ok := jsontext.Text(e.Raw); ok {
				maxBytes = max(maxBytes, int64(len(text)))
			}
		}
	}
	return scalarDecl(cel.StringType, minString, maxBytes)
}

// withObjectFields returns the properties of a resource. They always include the type, name and
// generateName.
func withObjectFields(props *v1.JSONSchemaProps) map[string]v1.JSONSchemaProps {
	stringSchema := v1.JSONSchemaProps{Type: "string"}
	metadata := props.Properties["metadata"]
	hasType := props.Properties["kind"].Type == "string" && props.Properties["apiVersion"].Type == "string"
	hasNames := metadata.Properties["name"].Type == "string" && metadata.Properties["generateName"].Type == "string"
	if hasType && metadata.Type == "object" && hasNames {
		return props.Properties
	}
	properties := maps.Clone(props.Properties)
	if properties == nil {
		properties = map[string]v1.JSONSchemaProps{}
	}
	properties["kind"] = stringSchema
	properties["apiVersion"] = stringSchema
	properties["metadata"] = v1.JSONSchemaProps{
		Type:       "object",
		Properties: map[string]v1.JSONSchemaProps{"name": stringSchema, "generateName": stringSchema},
	}
	return properties
}

// declareObject returns the type of an object with properties.
func declareObject(props *v1.JSONSchemaProps, root bool) *decl {
	properties := props.Properties
	if root {
		properties = withObjectFields(props)
	}
	required := make(map[string]bool, len(props.Required))
	for _, name := range props.Required {
		required[name] = true
	}
	declaration := &decl{
		fields:     make(map[string]*decl, len(properties)),
		fieldTypes: make(map[string]*cel.Type, len(properties)),
		minBytes:   emptyObject,
	}
	for name, schemaProps := range properties {
		fieldDecl := declare(&schemaProps, schemaProps.XEmbeddedResource)
		if fieldDecl == nil {
			continue
		}
		if escaped, ok := celenv.Escape(name); ok {
			declaration.fields[escaped] = fieldDecl
			declaration.fieldTypes[escaped] = fieldDecl.celType
			if fieldDecl.fields != nil || fieldDecl.elem != nil {
				declaration.objectFields = append(declaration.objectFields, fieldDecl)
			}
		}
		if required[name] && !hasDefault(&schemaProps) {
			declaration.minBytes += int64(len(name)) + fieldDecl.minBytes + memberOverhead
		}
	}
	declaration.celType = cel.ObjectType(declaration.signature())
	return declaration
}

// hasDefault reports whether a schema has a default other than null.
func hasDefault(s *v1.JSONSchemaProps) bool {
	return s.Default != nil && len(s.Default.Raw) > 0 && string(s.Default.Raw) != "null"
}

// property returns the type of a property of a schema with type d, or nil if d does not contain it.
// It returns nil for the kind, apiVersion and metadata of a resource, because withObjectFields may
// have replaced their schemas.
func (d *decl) property(name string, resource bool) *decl {
	isReplaced := resource && (name == "kind" || name == "apiVersion" || name == "metadata")
	if d == nil || d.fields == nil || isReplaced {
		return nil
	}
	escaped, ok := celenv.Escape(name)
	if !ok {
		return nil
	}
	return d.fields[escaped]
}

// element returns the type of the elements of a list or map schema with type d, or nil if d does
// not contain it.
func (d *decl) element(s *v1.JSONSchemaProps) *decl {
	isList := d != nil && d.key == nil
	if d == nil || (s.Type == "array") != isList {
		return nil
	}
	return d.elem
}

// signature returns the name of an object type. It depends only on the fields, so that equal types
// have the same name and share their rules.
func (d *decl) signature() string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(d.fields)) {
		hash.Write([]byte(name + ":" + d.fields[name].celType.String() + ";"))
	}
	return "selfType" + hex.EncodeToString(hash.Sum(nil)[:16])
}

// objectTypes holds the object types within a type, by name.
type objectTypes map[string]map[string]*cel.Type

// Fields implements celenv.TypeFinder.
func (o objectTypes) Fields(name string) (map[string]*cel.Type, bool) {
	f, ok := o[name]
	return f, ok
}

// add adds the object types of a declaration.
func (o objectTypes) add(declaration *decl) {
	if declaration == nil {
		return
	}
	o.add(declaration.elem)
	if declaration.fields == nil {
		return
	}
	name := declaration.celType.TypeName()
	if _, ok := o[name]; ok {
		return
	}
	o[name] = declaration.fieldTypes
	for _, sub := range declaration.objectFields {
		o.add(sub)
	}
}

// sizeEstimator implements celenv.SizeEstimator for the variables self and oldSelf.
type sizeEstimator struct{ self *decl }

// EstimateSize implements celenv.SizeEstimator.
func (s sizeEstimator) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 {
		return nil
	}
	current := s.self
	for _, name := range path[1:] {
		switch name {
		case "@items", "@values":
			current = current.elem
		case "@keys":
			current = current.key
		default:
			current = current.fields[name]
		}
		if current == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Max: uint64(current.maxSize)}
}

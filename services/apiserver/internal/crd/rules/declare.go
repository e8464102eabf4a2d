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
	minText          = 2
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
	cel    *cel.Type
	fields map[string]*decl     // of objects, by escaped name
	types  map[string]*cel.Type // of fields
	within []*decl              // the fields that are or contain objects
	key    *decl                // of maps
	elem   *decl                // of lists and maps
	max    int64                // maximum number of elements or bytes
	min    int64                // minimum size of the JSON text
}

// scalarDecl returns the declaration of a type without elements.
func scalarDecl(t *cel.Type, min, max int64) *decl { return &decl{cel: t, min: min, max: max} }

// declare returns the type of a schema, or nil if CEL does not see its values. root states that the
// schema describes a resource or an embedded one, which always has a type and metadata.
func declare(s *v1.JSONSchemaProps, root bool) *decl {
	if s == nil {
		return nil
	}
	if s.XIntOrString {
		return scalarDecl(cel.DynType, minNumber, requestSize-minText)
	}
	switch s.Type {
	case "array":
		return declareList(s)
	case "object":
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			return declareMap(s)
		}
		return declareObject(s, root)
	case "string":
		return declareText(s)
	case "boolean":
		return scalarDecl(cel.BoolType, minBool, 0)
	case "number":
		return scalarDecl(cel.DoubleType, minNumber, 0)
	case "integer":
		return scalarDecl(cel.IntType, minNumber, 0)
	}
	return nil
}

func atLeastZero(n int64) int64 { return max(n, 0) }

// declareList returns the type of an array, or nil if CEL does not see it.
func declareList(s *v1.JSONSchemaProps) *decl {
	if s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	elem := declare(s.Items.Schema, s.Items.Schema.XEmbeddedResource)
	if elem == nil {
		return nil
	}
	d := &decl{cel: cel.ListType(elem.cel), elem: elem, min: emptyObject}
	if s.MaxItems != nil {
		d.max = atLeastZero(*s.MaxItems)
	} else {
		d.max = (requestSize - emptyObject) / (elem.min + 1)
	}
	return d
}

// declareMap returns the type of an object with values of one schema.
func declareMap(s *v1.JSONSchemaProps) *decl {
	values := s.AdditionalProperties.Schema
	elem := declare(values, values.XEmbeddedResource)
	if elem == nil {
		return nil
	}
	d := &decl{cel: cel.MapType(cel.StringType, elem.cel), key: scalarDecl(cel.StringType, minText, 0), elem: elem, min: emptyObject}
	if s.MaxProperties != nil {
		d.max = atLeastZero(*s.MaxProperties)
	} else {
		d.max = (requestSize - emptyObject) / (elem.min + mapEntryOverhead)
	}
	return d
}

// declareText returns the type of a string by its format.
func declareText(s *v1.JSONSchemaProps) *decl {
	whole := int64(requestSize - minText)
	switch s.Format {
	case "byte":
		if s.MaxLength != nil {
			whole = atLeastZero(*s.MaxLength)
		}
		return scalarDecl(cel.BytesType, minText, whole)
	case "duration":
		return scalarDecl(cel.DurationType, minDuration, maxDuration)
	case "date":
		return scalarDecl(cel.TimestampType, dateSize, dateSize)
	case "date-time":
		return scalarDecl(cel.TimestampType, minTime, maxTime)
	}
	switch {
	case s.MaxLength != nil:
		whole = atLeastZero(*s.MaxLength) * bytesPerRune
	case len(s.Enum) > 0:
		whole = 0
		for _, e := range s.Enum {
			if text, ok := jsontext.Text(e.Raw); ok {
				whole = max(whole, int64(len(text)))
			}
		}
	}
	return scalarDecl(cel.StringType, minText, whole)
}

// withMeta returns the properties of a resource. They always include the type, name and
// generateName.
func withMeta(s *v1.JSONSchemaProps) map[string]v1.JSONSchemaProps {
	text := v1.JSONSchemaProps{Type: "string"}
	meta := s.Properties["metadata"]
	if s.Properties["kind"].Type == "string" && s.Properties["apiVersion"].Type == "string" && meta.Type == "object" &&
		meta.Properties["name"].Type == "string" && meta.Properties["generateName"].Type == "string" {
		return s.Properties
	}
	props := maps.Clone(s.Properties)
	if props == nil {
		props = map[string]v1.JSONSchemaProps{}
	}
	props["kind"] = text
	props["apiVersion"] = text
	props["metadata"] = v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{"name": text, "generateName": text}}
	return props
}

// declareObject returns the type of an object with properties.
func declareObject(s *v1.JSONSchemaProps, root bool) *decl {
	props := s.Properties
	if root {
		props = withMeta(s)
	}
	required := make(map[string]bool, len(s.Required))
	for _, name := range s.Required {
		required[name] = true
	}
	d := &decl{fields: make(map[string]*decl, len(props)), types: make(map[string]*cel.Type, len(props)), min: emptyObject}
	for name, p := range props {
		f := declare(&p, p.XEmbeddedResource)
		if f == nil {
			continue
		}
		if escaped, ok := celenv.Escape(name); ok {
			d.fields[escaped] = f
			d.types[escaped] = f.cel
			if f.fields != nil || f.elem != nil {
				d.within = append(d.within, f)
			}
		}
		if required[name] && !hasDefault(&p) {
			d.min += int64(len(name)) + f.min + memberOverhead
		}
	}
	d.cel = cel.ObjectType(d.signature())
	return d
}

func hasDefault(s *v1.JSONSchemaProps) bool {
	return s.Default != nil && len(s.Default.Raw) > 0 && string(s.Default.Raw) != "null"
}

// property returns the type of a property of a schema with type d, or nil if d does not contain it.
// For the type and metadata of resources, d may differ from the schema, and property returns nil.
func (d *decl) property(name string, resource bool) *decl {
	if d == nil || d.fields == nil || resource && (name == "kind" || name == "apiVersion" || name == "metadata") {
		return nil
	}
	escaped, ok := celenv.Escape(name)
	if !ok {
		return nil
	}
	return d.fields[escaped]
}

// each returns the type of the elements of a list or map schema with type d, or nil if d does not
// contain it.
func (d *decl) each(s *v1.JSONSchemaProps) *decl {
	if d == nil || (s.Type == "array") != (d.key == nil) {
		return nil
	}
	return d.elem
}

// signature returns the name of an object type. It depends only on the fields, so that equal types
// have the same name and share their rules.
func (d *decl) signature() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(d.fields)) {
		h.Write([]byte(name + ":" + d.fields[name].cel.String() + ";"))
	}
	return "selfType" + hex.EncodeToString(h.Sum(nil)[:16])
}

// objects holds the object types within a type, by name.
type objects map[string]map[string]*cel.Type

// Fields implements celenv.TypeFinder.
func (o objects) Fields(name string) (map[string]*cel.Type, bool) {
	f, ok := o[name]
	return f, ok
}

// add adds the object types of d.
func (o objects) add(d *decl) {
	if d == nil {
		return
	}
	o.add(d.elem)
	if d.fields == nil {
		return
	}
	name := d.cel.TypeName()
	if _, ok := o[name]; ok {
		return
	}
	o[name] = d.types
	for _, sub := range d.within {
		o.add(sub)
	}
}

// sizes implements celenv.SizeEstimator for the variables self and oldSelf.
type sizes struct{ self *decl }

// EstimateSize implements celenv.SizeEstimator.
func (s sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 {
		return nil
	}
	at := s.self
	for _, name := range path[1:] {
		switch name {
		case "@items", "@values":
			at = at.elem
		case "@keys":
			at = at.key
		default:
			at = at.fields[name]
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Max: uint64(at.max)}
}

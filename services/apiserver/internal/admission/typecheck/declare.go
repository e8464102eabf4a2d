package typecheck

import (
	"maps"

	"github.com/google/cel-go/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/libs/celenv"
)

// objectTypes maps the name of an object type, as declarer forms it, to the types of its fields by
// their names.
type objectTypes map[string]map[string]*cel.Type

// declarer converts a schema to CEL types by the rules of Kubernetes:
//   - An int-or-string value has the dynamic type.
//   - A value without a type is not visible to expressions, and neither is a list or map of such
//     values.
//   - An object type is named after the path of the value, such as Deployment0.spec.template.
type declarer struct {
	// follow is Schemas.Follow. It returns nil for a reference without a target.
	follow func(*spec.Schema) (*spec.Schema, string)
	// types collects the object types that were declared.
	types objectTypes
	// resolving holds the names of the references that lead to the current schema. A reference to
	// one of them is recursive and becomes an object without known fields.
	resolving map[string]bool
}

// declare returns the type of a schema, or nil if its values are not visible to expressions. path
// is the path of the value. isResource reports that the value is an API object, which always has a
// kind, an apiVersion and a name.
func (d *declarer) declare(unresolved *spec.Schema, path string, isResource bool) *cel.Type {
	schema, name := d.follow(unresolved)
	if schema == nil {
		return nil
	}
	if name != "" {
		if d.resolving[name] {
			return d.declareObject(path, nil)
		}
		d.resolving[name] = true
		defer delete(d.resolving, name)
	}
	if hasExtension(schema, "x-kubernetes-int-or-string") || schema.Format == "int-or-string" {
		return cel.DynType
	}
	if len(schema.Type) == 0 {
		return nil
	}
	switch schema.Type[0] {
	case "array":
		return d.declareList(schema, path)
	case "object":
		if a := schema.AdditionalProperties; a != nil && a.Schema != nil {
			return d.declareMap(a.Schema, path)
		}
		properties := schema.Properties
		if isResource {
			properties = d.withMeta(schema)
		}
		return d.declareObject(path, properties)
	case "string":
		return stringType(schema.Format)
	case "boolean":
		return cel.BoolType
	case "number":
		return cel.DoubleType
	case "integer":
		return cel.IntType
	}
	return nil
}

func hasExtension(s *spec.Schema, extension string) bool {
	yes, _ := s.Extensions.GetBool(extension)
	return yes
}

// isEmbeddedResource reports whether the values of a schema are API objects inside another object.
func isEmbeddedResource(s *spec.Schema) bool {
	return hasExtension(s, "x-kubernetes-embedded-resource")
}

func stringType(format string) *cel.Type {
	switch format {
	case "byte":
		return cel.BytesType
	case "duration":
		return cel.DurationType
	case "date", "date-time":
		return cel.TimestampType
	}
	return cel.StringType
}

// declareList returns the type of a list. The path of its elements ends in ".@idx".
func (d *declarer) declareList(s *spec.Schema, path string) *cel.Type {
	if s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	element := d.declare(s.Items.Schema, path+".@idx", isEmbeddedResource(s.Items.Schema))
	if element == nil {
		return nil
	}
	return cel.ListType(element)
}

// declareMap returns the type of a map with values of a schema, whose path ends in ".@elem".
func (d *declarer) declareMap(values *spec.Schema, path string) *cel.Type {
	element := d.declare(values, path+".@elem", isEmbeddedResource(values))
	if element == nil {
		return nil
	}
	return cel.MapType(cel.StringType, element)
}

// declareObject declares an object type and returns it. Properties whose names are not valid in CEL
// have escaped names.
func (d *declarer) declareObject(path string, properties map[string]spec.Schema) *cel.Type {
	fields := make(map[string]*cel.Type, len(properties))
	for name, property := range properties {
		escaped, ok := celenv.Escape(name)
		if !ok {
			continue
		}
		fieldType := d.declare(&property, path+"."+escaped, isEmbeddedResource(&property))
		if fieldType == nil {
			continue
		}
		fields[escaped] = fieldType
		if celenv.IsReserved(name) {
			fields[name] = fieldType
		}
	}
	d.types[path] = fields
	return cel.ObjectType(path)
}

// withMeta returns the properties of an API object. If the schema lacks kind, apiVersion,
// metadata.name or metadata.generateName, withMeta replaces metadata and adds them.
func (d *declarer) withMeta(schema *spec.Schema) map[string]spec.Schema {
	hasType := func(p spec.Schema, ok bool, kind string) bool { return ok && p.Type.Contains(kind) }
	kind, hasKind := schema.Properties["kind"]
	version, hasVersion := schema.Properties["apiVersion"]
	if meta, ok := schema.Properties["metadata"]; ok && hasType(kind, hasKind, "string") && hasType(version, hasVersion, "string") {
		if metaSchema, _ := d.follow(&meta); metaSchema != nil && metaSchema.Type.Contains("object") {
			name, hasName := metaSchema.Properties["name"]
			prefix, hasPrefix := metaSchema.Properties["generateName"]
			if hasType(name, hasName, "string") && hasType(prefix, hasPrefix, "string") {
				return schema.Properties
			}
		}
	}
	out := maps.Clone(schema.Properties)
	if out == nil {
		out = map[string]spec.Schema{}
	}
	stringSchema := *spec.StringProperty()
	out["kind"], out["apiVersion"] = stringSchema, stringSchema
	out["metadata"] = spec.Schema{
		SchemaProps: spec.SchemaProps{
			Type:       []string{"object"},
			Properties: map[string]spec.Schema{"name": stringSchema, "generateName": stringSchema},
		},
	}
	return out
}

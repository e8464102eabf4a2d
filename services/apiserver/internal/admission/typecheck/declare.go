package typecheck

import (
	"maps"

	"github.com/google/cel-go/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/libs/celenv"
)

// objectTypes holds the fields of nested object types, by name.
type objectTypes map[string]map[string]*cel.Type

// declarer converts a schema to CEL types, like Kubernetes. A value of several types is dynamic. A
// value without a type is not visible to expressions. Neither is a list or map of such values. An
// object type is named after its path, such as Deployment0.spec.template.
type declarer struct {
	// follow resolves a reference. It returns the target and its name, or nil.
	follow func(*spec.Schema) (*spec.Schema, string)
	types  objectTypes
	// inside holds the references that are being resolved. A recursive type is an object without
	// known fields.
	inside map[string]bool
}

// declare returns the type of a schema, or nil if its values are not visible. path is the path of the
// value. root states that the value is a resource, which always has a type and a name.
func (d *declarer) declare(unresolved *spec.Schema, path string, root bool) *cel.Type {
	s, name := d.follow(unresolved)
	if s == nil {
		return nil
	}
	if name != "" {
		if d.inside[name] {
			return d.object(path, nil)
		}
		d.inside[name] = true
		defer delete(d.inside, name)
	}
	if hasExtension(s, "x-kubernetes-int-or-string") || s.Format == "int-or-string" {
		return cel.DynType
	}
	if len(s.Type) == 0 {
		return nil
	}
	switch s.Type[0] {
	case "array":
		return d.list(s, path)
	case "object":
		if a := s.AdditionalProperties; a != nil && a.Schema != nil {
			return d.mapping(a.Schema, path)
		}
		properties := s.Properties
		if root {
			properties = d.withMeta(s)
		}
		return d.object(path, properties)
	case "string":
		return stringType(s.Format)
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

func embedded(s *spec.Schema) bool { return hasExtension(s, "x-kubernetes-embedded-resource") }

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

func (d *declarer) list(s *spec.Schema, path string) *cel.Type {
	if s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	element := d.declare(s.Items.Schema, path+".@idx", embedded(s.Items.Schema))
	if element == nil {
		return nil
	}
	return cel.ListType(element)
}

func (d *declarer) mapping(values *spec.Schema, path string) *cel.Type {
	element := d.declare(values, path+".@elem", embedded(values))
	if element == nil {
		return nil
	}
	return cel.MapType(cel.StringType, element)
}

// object declares an object type with properties.
func (d *declarer) object(path string, properties map[string]spec.Schema) *cel.Type {
	fields := make(map[string]*cel.Type, len(properties))
	for name, p := range properties {
		escaped, ok := celenv.Escape(name)
		if !ok {
			continue
		}
		t := d.declare(&p, path+"."+escaped, embedded(&p))
		if t == nil {
			continue
		}
		fields[escaped] = t
		if celenv.IsReserved(name) {
			fields[name] = t
		}
	}
	d.types[path] = fields
	return cel.ObjectType(path)
}

// withMeta returns the properties of a resource. They always include the type, name and
// generateName.
func (d *declarer) withMeta(s *spec.Schema) map[string]spec.Schema {
	isA := func(p spec.Schema, ok bool, kind string) bool { return ok && p.Type.Contains(kind) }
	kind, hasKind := s.Properties["kind"]
	version, hasVersion := s.Properties["apiVersion"]
	if meta, ok := s.Properties["metadata"]; ok && isA(kind, hasKind, "string") && isA(version, hasVersion, "string") {
		if m, _ := d.follow(&meta); m != nil && m.Type.Contains("object") {
			name, hasName := m.Properties["name"]
			prefix, hasPrefix := m.Properties["generateName"]
			if isA(name, hasName, "string") && isA(prefix, hasPrefix, "string") {
				return s.Properties
			}
		}
	}
	out := maps.Clone(s.Properties)
	if out == nil {
		out = map[string]spec.Schema{}
	}
	stringSchema := *spec.StringProperty()
	out["kind"], out["apiVersion"] = stringSchema, stringSchema
	out["metadata"] = spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: map[string]spec.Schema{"name": stringSchema, "generateName": stringSchema}}}
	return out
}

package apply

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
	"sigs.k8s.io/structured-merge-diff/v4/value"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apis/mergetypes"
	"binnacle/services/apiserver/internal/registry/apis/typename"
)

// mergeTypes holds the merge rules of Go types. Kubernetes types are in the schema that client-go
// contains for apply. Rules of other types are derived from the types and their struct tags
// (specification: "Merge-strategy markers"). Nothing is loaded before its first use.
type mergeTypes struct {
	schema func() *smd.Schema
}

// The names under which schemas know values of any type: treated as atomic, or with rules that are
// deduced from the value.
const (
	untypedAtomic  = "__untyped_atomic_"
	untypedDeduced = "__untyped_deduced_"
)

// newMergeTypes returns the merge types of the roots and of all types that they contain. They are
// derived on first use.
func newMergeTypes(roots []reflect.Type) *mergeTypes {
	return &mergeTypes{schema: sync.OnceValue(func() *smd.Schema {
		typeDeriver := &deriver{known: map[string]bool{}}
		if known := mergetypes.Schema(); known != nil {
			typeDeriver.types = slices.Clip(known.Types)
		}
		for i := range typeDeriver.types {
			typeDeriver.known[typeDeriver.types[i].Name] = true
		}
		for _, t := range roots {
			typeDeriver.typeRef(t, "")
		}
		return &smd.Schema{Types: typeDeriver.types}
	})}
}

// rulesFor returns the rules of a Go type, which is one of the roots or part of one.
func (t *mergeTypes) rulesFor(goType reflect.Type) typed.ParseableType {
	name := typename.ForType(goType)
	return typed.ParseableType{Schema: t.schema(), TypeRef: smd.TypeRef{NamedType: &name}}
}

// deriver derives merge rules from Go types. known holds the names of all types in types, and of
// those that are being derived.
type deriver struct {
	types []smd.TypeDef
	known map[string]bool
}

// schemaTyped is implemented by types that declare their JSON type.
type schemaTyped interface{ OpenAPISchemaType() []string }

// scalarRef returns a reference to the rules of a scalar.
func scalarRef(s smd.Scalar) smd.TypeRef { return smd.TypeRef{Inlined: smd.Atom{Scalar: &s}} }

// namedRef returns a reference to the rules of a named type.
func namedRef(name string) smd.TypeRef { return smd.TypeRef{NamedType: &name} }

// typeRef returns a reference to the merge rules of goType, the type of a field with the given tag. The
// tag selects the rules of a list. The rules of a struct are added to the schema first.
func (d *deriver) typeRef(goType reflect.Type, tag reflect.StructTag) smd.TypeRef {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	if goType.PkgPath() != "" && d.known[typename.ForType(goType)] {
		return namedRef(typename.ForType(goType))
	}
	switch value := reflect.New(goType).Interface().(type) {
	case schemaTyped:
		if len(value.OpenAPISchemaType()) == 1 && value.OpenAPISchemaType()[0] == "string" {
			return scalarRef(smd.Untyped)
		}
		return namedRef(untypedDeduced)
	case json.Marshaler:
		return namedRef(untypedAtomic)
	}
	switch goType.Kind() {
	case reflect.Struct:
		return d.structRef(goType)
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return scalarRef(smd.String)
		}
		return smd.TypeRef{Inlined: smd.Atom{List: d.listRules(goType, tag)}}
	case reflect.Map:
		return smd.TypeRef{Inlined: smd.Atom{Map: &smd.Map{ElementType: d.typeRef(goType.Elem(), "")}}}
	case reflect.String:
		return scalarRef(smd.String)
	case reflect.Bool:
		return scalarRef(smd.Boolean)
	case reflect.Interface:
		return namedRef(untypedAtomic)
	default:
		return scalarRef(smd.Numeric)
	}
}

// listRules returns the merge rules of a list from the tags of its field.
func (d *deriver) listRules(t reflect.Type, tag reflect.StructTag) *smd.List {
	list := &smd.List{ElementType: d.typeRef(t.Elem(), ""), ElementRelationship: smd.Atomic}
	strategy := strings.Split(tag.Get("patchStrategy"), ",")
	kind := tag.Get("listType")
	switch {
	case kind == "map":
		list.ElementRelationship = smd.Associative
		list.Keys = strings.Split(tag.Get("listMapKey"), ",")
	case kind == "set":
		list.ElementRelationship = smd.Associative
	case kind == "" && slices.Contains(strategy, "merge"):
		list.ElementRelationship = smd.Associative
		if key := tag.Get("patchMergeKey"); key != "" {
			list.Keys = []string{key}
		}
	}
	return list
}

// structRef adds the merge rules of a struct to the schema and returns a reference to them.
func (d *deriver) structRef(goType reflect.Type) smd.TypeRef {
	name := typename.ForType(goType)
	d.known[name] = true // before its fields: types may be recursive
	m := &smd.Map{}
	d.addFields(m, goType)
	d.types = append(d.types, smd.TypeDef{Name: name, Atom: smd.Atom{Map: m}})
	return namedRef(name)
}

// addFields adds the JSON fields of a struct to mapRules, including those of embedded structs.
func (d *deriver) addFields(mapRules *smd.Map, t reflect.Type) {
	for i := range t.NumField() {
		structField := t.Field(i)
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case name == "-" || !structField.IsExported():
		case name == "" && structField.Anonymous:
			d.addFields(mapRules, structField.Type)
		case name != "":
			mapRules.Fields = append(mapRules.Fields, smd.StructField{Name: name, Type: d.typeRef(structField.Type, structField.Tag)})
		}
	}
}

// asTyped returns an object with the merge rules of its kind.
func (v *view) asTyped(obj registry.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		return v.typed().FromUnstructured(u.UnstructuredContent(), options...)
	}
	return v.typed().FromStructured(obj, options...)
}

// typedDifferences compares two objects with the merge library.
func (v *view) typedDifferences(live, obj registry.Object) (*changes, error) {
	live, obj = withoutEqualParts(live, obj)
	a, err := v.asTyped(live, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	b, err := v.asTyped(obj, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	d, err := compareTyped(a, b)
	if err != nil {
		return nil, err
	}
	return &changes{set: d.Modified.Union(d.Added), removed: d.Removed}, nil
}

// compareEncodings compares the JSON of two values of a type that encodes itself.
func (c *comparer) compareEncodings(shape *valueShape, a, b reflect.Value, hasA, hasB bool) {
	comparison, err := compareTyped(typedFrom(shape, a, hasA), typedFrom(shape, b, hasB))
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	graft := func(to, from *fieldpath.Set) {
		from.Iterate(func(p fieldpath.Path) { to.Insert(append(c.path.Copy(), p...)) })
	}
	graft(c.set.root, comparison.Modified)
	graft(c.set.root, comparison.Added)
	graft(c.removed.root, comparison.Removed)
	// The sets contain no path for the value itself, so it is added here.
	switch {
	case !hasA:
		c.set.insert(c.path)
	case !hasB:
		c.removed.insert(c.path)
	case comparison.IsSame() && !equal(shape, a, b, nullEqualsNull):
		c.set.insert(c.path)
	}
}

// typedFrom returns a value with the merge rules of a foreign shape. An absent value becomes null.
func typedFrom(shape *valueShape, goValue reflect.Value, has bool) *typed.TypedValue {
	if !has {
		return typed.AsTypedUnvalidated(nil, shape.typed.Schema, shape.typed.TypeRef)
	}
	var plain any
	if goValue.IsValid() {
		plain = decodedJSON(goValue)
	}
	return typed.AsTypedUnvalidated(value.NewValueInterface(plain), shape.typed.Schema, shape.typed.TypeRef)
}

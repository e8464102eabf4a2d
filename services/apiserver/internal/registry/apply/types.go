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

// Names of values of any type in schemas: atomic, or with rules deduced from the value.
const (
	untyped = "__untyped_atomic_"
	deduced = "__untyped_deduced_"
)

// newTypes returns the merge types of Go types and everything below them. They are derived on
// first use.
func newTypes(roots []reflect.Type) *mergeTypes {
	return &mergeTypes{schema: sync.OnceValue(func() *smd.Schema {
		d := &deriver{known: map[string]bool{}}
		if known := mergetypes.Schema(); known != nil {
			d.types = slices.Clip(known.Types)
		}
		for i := range d.types {
			d.known[d.types[i].Name] = true
		}
		for _, t := range roots {
			d.ref(t, "")
		}
		return &smd.Schema{Types: d.types}
	})}
}

// forType returns the rules of a Go type, which is one of the roots or part of one.
func (t *mergeTypes) forType(goType reflect.Type) typed.ParseableType {
	name := typename.ForType(goType)
	return typed.ParseableType{Schema: t.schema(), TypeRef: smd.TypeRef{NamedType: &name}}
}

// deriver adds types to a schema.
type deriver struct {
	types []smd.TypeDef
	known map[string]bool
}

// schemaTyped is implemented by types that declare their JSON type.
type schemaTyped interface{ OpenAPISchemaType() []string }

func scalar(s smd.Scalar) smd.TypeRef { return smd.TypeRef{Inlined: smd.Atom{Scalar: &s}} }

func named(name string) smd.TypeRef { return smd.TypeRef{NamedType: &name} }

// ref returns a reference to the rules of a type in a field with the given tag.
func (d *deriver) ref(t reflect.Type, tag reflect.StructTag) smd.TypeRef {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() != "" && d.known[typename.ForType(t)] {
		return named(typename.ForType(t))
	}
	switch value := reflect.New(t).Interface().(type) {
	case schemaTyped:
		if len(value.OpenAPISchemaType()) == 1 && value.OpenAPISchemaType()[0] == "string" {
			return scalar(smd.Untyped)
		}
		return named(deduced)
	case json.Marshaler:
		return named(untyped)
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.structure(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return scalar(smd.String)
		}
		return smd.TypeRef{Inlined: smd.Atom{List: d.list(t, tag)}}
	case reflect.Map:
		return smd.TypeRef{Inlined: smd.Atom{Map: &smd.Map{ElementType: d.ref(t.Elem(), "")}}}
	case reflect.String:
		return scalar(smd.String)
	case reflect.Bool:
		return scalar(smd.Boolean)
	case reflect.Interface:
		return named(untyped)
	default:
		return scalar(smd.Numeric)
	}
}

// list returns the merge rules of a list from the tags of its field.
func (d *deriver) list(t reflect.Type, tag reflect.StructTag) *smd.List {
	l := &smd.List{ElementType: d.ref(t.Elem(), ""), ElementRelationship: smd.Atomic}
	strategy := strings.Split(tag.Get("patchStrategy"), ",")
	kind := tag.Get("listType")
	switch {
	case kind == "map":
		l.ElementRelationship = smd.Associative
		l.Keys = strings.Split(tag.Get("listMapKey"), ",")
	case kind == "set":
		l.ElementRelationship = smd.Associative
	case kind == "" && slices.Contains(strategy, "merge"):
		l.ElementRelationship = smd.Associative
		if key := tag.Get("patchMergeKey"); key != "" {
			l.Keys = []string{key}
		}
	}
	return l
}

func (d *deriver) structure(t reflect.Type) smd.TypeRef {
	name := typename.ForType(t)
	d.known[name] = true // before its fields: types may be recursive
	m := &smd.Map{}
	d.fields(m, t)
	d.types = append(d.types, smd.TypeDef{Name: name, Atom: smd.Atom{Map: m}})
	return named(name)
}

func (d *deriver) fields(m *smd.Map, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			d.fields(m, f.Type)
		case name != "":
			m.Fields = append(m.Fields, smd.StructField{Name: name, Type: d.ref(f.Type, f.Tag)})
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

// typedDifferences compares two objects without a Go type.
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
	d, err := compare(a, b)
	if err != nil {
		return nil, err
	}
	return &changes{set: d.Modified.Union(d.Added), removed: d.Removed}, nil
}

// compareEncodings compares two values of a type that encodes itself by their encodings.
func (c *comparer) compareEncodings(s *fieldSchema, a, b reflect.Value, hasA, hasB bool) {
	d, err := compare(typedValue(s, a, hasA), typedValue(s, b, hasB))
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	graft := func(to, from *fieldpath.Set) {
		from.Iterate(func(p fieldpath.Path) { to.Insert(append(c.path.Copy(), p...)) })
	}
	graft(c.set.root, d.Modified)
	graft(c.set.root, d.Added)
	graft(c.removed.root, d.Removed)
	// The root of a set has no path of its own.
	switch {
	case !hasA:
		c.set.insert(c.path)
	case !hasB:
		c.removed.insert(c.path)
	case d.IsSame() && !equal(s, a, b, nullEqualsNull):
		c.set.insert(c.path)
	}
}

func typedValue(s *fieldSchema, v reflect.Value, has bool) *typed.TypedValue {
	if !has {
		return typed.AsTypedUnvalidated(nil, s.typed.Schema, s.typed.TypeRef)
	}
	var plain any
	if v.IsValid() {
		plain = encoded(v)
	}
	return typed.AsTypedUnvalidated(value.NewValueInterface(plain), s.typed.Schema, s.typed.TypeRef)
}

package kind

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	apiextensionsv1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/customresource/rules"
	"binnacle/services/apiserver/internal/registry"
)

// Conversion brings documents of one definition to other versions.
type Conversion interface {
	// Convert returns documents in the version given, in the same order, with their
	// metadata. Those that have it already are as they were.
	Convert(ctx context.Context, docs [][]byte, version string) ([][]byte, error)
}

// Maker makes declarations.
type Maker struct {
	// Rules compiles the rules of all definitions.
	Rules *rules.Compiler
	// Conversion returns what converts the objects of a definition whose versions
	// are converted by a webhook.
	Conversion func(*Definition) Conversion
	// NoSelectableFields ignores the selectable fields of definitions (gate
	// CustomResourceFieldSelectors off).
	NoSelectableFields bool

	patterns patterns

	usual sync.Once
	// usualTable is of versions that say nothing of columns.
	usualTable *table
}

// scaleKind is what the sub-resource scale shows.
var scaleKind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

// All returns the served versions of a definition, in its order. The definition
// must have been accepted and must not change afterwards.
func (m *Maker) All(d *Definition) []*registry.Kind {
	var all, unserved []*registry.Kind
	f := m.family(d)
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		k := m.version(d, v, f.versions[v.Name])
		if v.Served {
			all = append(all, k)
		} else {
			unserved = append(unserved, k)
		}
	}
	for _, k := range all {
		k.Document.Unserved = unserved
	}
	return all
}

// Definition is a definition without its schemas, which are read again when they
// are needed.
type Definition struct {
	*apiextensionsv1.CustomResourceDefinition
	// Kinds are the served versions, in its order, where somebody has made them.
	Kinds []*registry.Kind
	// Sum is another one when anything else is stored: after a store was restored it may
	// tell the same resourceVersion with another definition.
	Sum   uint64
	whole func() (*apiextensionsv1.CustomResourceDefinition, error)
}

// Same tells whether o was read of the same that is stored.
func (d *Definition) Same(o *Definition) bool {
	return d.UID == o.UID && d.ResourceVersion == o.ResourceVersion && d.Sum == o.Sum
}

// Read reads a definition. whole decodes it, anew each time it is called; outline does
// so too, and may leave its schemas out.
func Read(outline, whole func() (*apiextensionsv1.CustomResourceDefinition, error)) (*Definition, error) {
	all, err := outline()
	if err != nil {
		return nil, err
	}
	all.ManagedFields = nil
	for i := range all.Spec.Versions {
		all.Spec.Versions[i].Schema = nil
	}
	return &Definition{CustomResourceDefinition: all, whole: whole}, nil
}

// Schema reads the schema of a version; nil when it has none.
func (d *Definition) Schema(version string) (*apiextensionsv1.JSONSchemaProps, error) {
	return d.Whole().Schema(version)
}

// Whole is a definition with its schemas, read once for all who ask it; they must not
// change what it returns.
type Whole struct {
	read func() (*apiextensionsv1.CustomResourceDefinition, error)
}

// Whole returns the definition to be read when a schema is asked for, which is large.
func (d *Definition) Whole() *Whole { return &Whole{sync.OnceValues(d.whole)} }

// Schema is the schema of a version; nil when it has none.
func (w *Whole) Schema(version string) (*apiextensionsv1.JSONSchemaProps, error) {
	all, err := w.read()
	if err != nil {
		return nil, err
	}
	for i := range all.Spec.Versions {
		if v := &all.Spec.Versions[i]; v.Name == version && v.Schema != nil {
			return v.Schema.OpenAPIV3Schema, nil
		}
	}
	return nil, nil
}

// Has tells whether a condition of a definition holds.
func (d *Definition) Has(condition apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == condition && c.Status == apiextensionsv1.ConditionTrue
	})
}

func (m *Maker) version(d *Definition, v *apiextensionsv1.CustomResourceDefinitionVersion, s *versionSchema) *registry.Kind {
	names, table := &d.Status.AcceptedNames, m.columns(v)
	k := &registry.Kind{
		Names: registry.Names{
			Group: d.Spec.Group, Version: v.Name, Resource: names.Plural, Singular: names.Singular, Kind: names.Kind, List: names.ListKind,
			ShortNames: names.ShortNames, Categories: names.Categories,
			Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped, AnyFinalizer: true,
		},
		New:     func() runtime.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		NewList: func() runtime.Object { return &unstructured.UnstructuredList{} },
		Stored: registry.Stored{
			Prefix: d.Spec.Group + "/" + names.Plural, Version: schema.GroupVersion{Group: d.Spec.Group, Version: storageVersion(d)}, JSON: true,
		},
		Update: registry.Update{Generation: true, NeedsVersion: true},
		Shown: registry.Shown{
			Columns: table.columns, Deprecated: deprecation(d, v),
			Verbs: []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		},
	}
	if d.Has(apiextensionsv1.Terminating) {
		k.Shown.Verbs = []string{"delete", "deletecollection", "get", "list", "watch"}
		k.Create.Closed = "create not allowed while custom resource definition is terminating"
	}
	fields := v.SelectableFields
	if m.NoSelectableFields {
		fields = nil
	}
	for _, f := range fields {
		k.Shown.Selectable = append(k.Shown.Selectable, registry.SelectableField{Label: f.JSONPath[1:], Path: f.JSONPath})
	}
	k.Document, k.MergeType = s.document(), s.mergeType
	k.Document.Row = table.row
	s.subresources(k)
	k.Parts = parts(k.HasStatus())
	k.Create.Warnings = func(o registry.Object) []string { return finalizerWarnings(o.GetFinalizers(), nil) }
	k.Update.Warnings = func(o, old registry.Object) []string {
		return finalizerWarnings(o.GetFinalizers(), old.GetFinalizers())
	}
	return k
}

func storageVersion(d *Definition) string {
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Storage {
			return d.Spec.Versions[i].Name
		}
	}
	return ""
}

// deprecation is the warning of a version that is deprecated.
func deprecation(d *Definition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if !v.Deprecated {
		return ""
	}
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	best := ""
	for i := range d.Spec.Versions {
		o := &d.Spec.Versions[i]
		if o.Served && !o.Deprecated && version.CompareKubeAwareVersionStrings(v.Name, o.Name) < 0 &&
			(best == "" || version.CompareKubeAwareVersionStrings(best, o.Name) < 0) {
			best = o.Name
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", d.Spec.Group, v.Name, d.Spec.Names.Kind)
	if best != "" {
		text += fmt.Sprintf("; use %s/%s %s", d.Spec.Group, best, d.Spec.Names.Kind)
	}
	return text
}

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

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Conversion converts documents of one definition to other versions.
type Conversion interface {
	// Convert returns documents in the given version, in the same order and with their metadata.
	// Documents that already have the version are unchanged.
	Convert(ctx context.Context, docs [][]byte, version string) ([][]byte, error)
}

// Maker creates declarations of kinds.
type Maker struct {
	// Rules compiles the rules of all definitions.
	Rules *rules.Compiler
	// Conversion returns the converter of a definition whose versions are converted by a webhook.
	Conversion func(*CRD) Conversion
	// NoSelectableFields ignores the selectable fields of definitions (gate
	// CustomResourceFieldSelectors off).
	NoSelectableFields bool

	patterns patterns

	// defaultTable is the table of versions without additional columns.
	defaultTable     *table
	defaultTableOnce sync.Once
}

// scaleKind is the kind of the scale subresource.
var scaleKind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

// All returns the served versions of a definition, in the definition's order. The definition must
// have been accepted and must not change afterwards.
func (m *Maker) All(d *CRD) []*registry.Kind {
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
		k.Unserved = unserved
	}
	return all
}

// CRD is a definition without its schemas, which are read again on demand.
type CRD struct {
	*apiextensionsv1.CustomResourceDefinition
	// Kinds holds the served versions in order, once they are created.
	Kinds []*registry.Kind
	// Sum changes whenever the stored value changes. After a restore of the store, the same
	// resourceVersion may denote another definition.
	Sum   uint64
	whole func() (*apiextensionsv1.CustomResourceDefinition, error)
}

// Same reports whether o was read from the same stored value.
func (d *CRD) Same(o *CRD) bool {
	return d.UID == o.UID && d.ResourceVersion == o.ResourceVersion && d.Sum == o.Sum
}

// Read reads a definition. outline and whole decode it again on each call. outline may omit the
// schemas.
func Read(outline, whole func() (*apiextensionsv1.CustomResourceDefinition, error)) (*CRD, error) {
	all, err := outline()
	if err != nil {
		return nil, err
	}
	all.ManagedFields = nil
	for i := range all.Spec.Versions {
		all.Spec.Versions[i].Schema = nil
	}
	return &CRD{CustomResourceDefinition: all, whole: whole}, nil
}

// Schema reads the schema of a version. It returns nil if the version has none.
func (d *CRD) Schema(version string) (*apiextensionsv1.JSONSchemaProps, error) {
	return d.Full().Schema(version)
}

// FullDefinition is a definition with its schemas, read once for all callers. Callers must not
// change the result.
type FullDefinition struct {
	read func() (*apiextensionsv1.CustomResourceDefinition, error)
}

// Full returns the definition with its schemas. It is large and is read when a schema is first
// requested.
func (d *CRD) Full() *FullDefinition { return &FullDefinition{sync.OnceValues(d.whole)} }

// Schema returns the schema of a version, or nil if it has none.
func (w *FullDefinition) Schema(version string) (*apiextensionsv1.JSONSchemaProps, error) {
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

// Has reports whether a condition of a definition is true.
func (d *CRD) Has(condition apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == condition && c.Status == apiextensionsv1.ConditionTrue
	})
}

// version returns the declaration of one version of a definition.
func (m *Maker) version(d *CRD, v *apiextensionsv1.CustomResourceDefinitionVersion, s *versionSchema) *registry.Kind {
	names := &d.Status.AcceptedNames
	table := m.columns(v)
	k := &registry.Kind{
		Names: registry.Names{
			Group: d.Spec.Group, Version: v.Name, Resource: names.Plural, Singular: names.Singular, Kind: names.Kind, List: names.ListKind,
			ShortNames: names.ShortNames, Categories: names.Categories,
			Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped, AnyFinalizer: true, NamespaceRequired: true,
		},
		New:     func() runtime.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		NewList: func() runtime.Object { return &unstructured.UnstructuredList{} },
		Stored: registry.StorageForm{
			Prefix: d.Spec.Group + "/" + names.Plural, Version: schema.GroupVersion{Group: d.Spec.Group, Version: storageVersion(d)}, JSON: true,
		},
		Create: registry.Create{AtName: true},
		Update: registry.Update{Generation: true, NeedsVersion: true},
		Delete: registry.Delete{NoTable: true},
		Presentation: registry.Presentation{
			Columns: table.columns, Deprecated: deprecation(d, v), DeprecatedAlways: true,
			Verbs: []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		},
	}
	if d.Has(apiextensionsv1.Terminating) {
		k.Presentation.Verbs = []string{"delete", "deletecollection", "get", "list", "watch"}
		k.Create.Closed = "create not allowed while custom resource definition is terminating"
	}
	fields := v.SelectableFields
	if m.NoSelectableFields {
		fields = nil
	}
	for _, f := range fields {
		k.Presentation.Selectable = append(k.Presentation.Selectable, registry.SelectableField{Label: f.JSONPath[1:], Path: f.JSONPath})
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

func storageVersion(d *CRD) string {
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Storage {
			return d.Spec.Versions[i].Name
		}
	}
	return ""
}

// deprecation returns the deprecation warning of a version, or "".
func deprecation(d *CRD, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
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

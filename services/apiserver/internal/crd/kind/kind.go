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
	crdschema "binnacle/services/apiserver/internal/crd/schema"
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

	// patterns is shared by the schemas of all definitions.
	patterns crdschema.PatternBudget

	// defaultTable holds the columns of versions without additional columns.
	defaultTable     *columnTable
	defaultTableOnce sync.Once
}

// scaleKind is the kind of the scale subresource.
var scaleKind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

// All returns a kind for each served version of a definition, in the order of the definition. The
// names of the definition must be accepted, and it must not change afterwards.
func (m *Maker) All(definition *CRD) []*registry.Kind {
	var kinds, unserved []*registry.Kind
	versions := m.newFamily(definition)
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		kind := m.newKind(definition, v, versions.versions[v.Name])
		if v.Served {
			kinds = append(kinds, kind)
		} else {
			unserved = append(unserved, kind)
		}
	}
	for _, kind := range kinds {
		kind.UnservedVersions = unserved
	}
	return kinds
}

// CRD is a definition without its schemas, which are decoded again on demand.
type CRD struct {
	*apiextensionsv1.CustomResourceDefinition
	// Kinds holds the served versions in order, once they are created.
	Kinds []*registry.Kind
	// Sum changes whenever the stored value changes. After a restore of the store, the same
	// resourceVersion may denote another definition.
	Sum        uint64
	decodeFull func() (*apiextensionsv1.CustomResourceDefinition, error)
}

// SameVersion reports whether other was read from the same stored value.
func (d *CRD) SameVersion(other *CRD) bool {
	return d.UID == other.UID && d.ResourceVersion == other.ResourceVersion && d.Sum == other.Sum
}

// NewCRD returns a definition. decodeOutline and decodeFull decode it again on each call. The
// result of decodeOutline may lack the schemas.
func NewCRD(decodeOutline, decodeFull func() (*apiextensionsv1.CustomResourceDefinition, error)) (*CRD, error) {
	definition, err := decodeOutline()
	if err != nil {
		return nil, err
	}
	definition.ManagedFields = nil
	for i := range definition.Spec.Versions {
		definition.Spec.Versions[i].Schema = nil
	}
	return &CRD{CustomResourceDefinition: definition, decodeFull: decodeFull}, nil
}

// Schema decodes the schema of a version. It returns nil if the version has none.
func (d *CRD) Schema(version string) (*apiextensionsv1.JSONSchemaProps, error) {
	return d.Full().Schema(version)
}

// FullDefinition is a definition with its schemas, decoded once for all callers. Callers must not
// change the result.
type FullDefinition struct {
	decode func() (*apiextensionsv1.CustomResourceDefinition, error)
}

// Full returns the definition with its schemas. It is large, so it is decoded when a schema is
// first requested.
func (d *CRD) Full() *FullDefinition { return &FullDefinition{sync.OnceValues(d.decodeFull)} }

// Schema returns the schema of a version, or nil if it has none.
func (f *FullDefinition) Schema(version string) (*apiextensionsv1.JSONSchemaProps, error) {
	definition, err := f.decode()
	if err != nil {
		return nil, err
	}
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == version && v.Schema != nil {
			return v.Schema.OpenAPIV3Schema, nil
		}
	}
	return nil, nil
}

// HasCondition reports whether a condition of a definition is true.
func (d *CRD) HasCondition(condition apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == condition && c.Status == apiextensionsv1.ConditionTrue
	})
}

// newKind returns the declaration of one version of a definition.
func (m *Maker) newKind(definition *CRD, version *apiextensionsv1.CustomResourceDefinitionVersion, compiled *versionSchema) *registry.Kind {
	names := &definition.Status.AcceptedNames
	table := m.columnTableOf(version)
	kind := &registry.Kind{
		Names: registry.Names{
			Group:                      definition.Spec.Group,
			Version:                    version.Name,
			Resource:                   names.Plural,
			Singular:                   names.Singular,
			Kind:                       names.Kind,
			List:                       names.ListKind,
			ShortNames:                 names.ShortNames,
			Categories:                 names.Categories,
			Namespaced:                 definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
			AllowUnqualifiedFinalizers: true,
			NamespaceRequired:          true,
		},
		New:     func() runtime.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		NewList: func() runtime.Object { return &unstructured.UnstructuredList{} },
		Stored: registry.StorageForm{
			Prefix:  definition.Spec.Group + "/" + names.Plural,
			Version: schema.GroupVersion{Group: definition.Spec.Group, Version: storageVersion(definition)},
			JSON:    true,
		},
		Create: registry.Create{NamedCreate: true},
		Update: registry.Update{Generation: true, RequireResourceVersion: true},
		Delete: registry.Delete{NoTable: true},
		Presentation: registry.Presentation{
			Columns:          table.columns,
			Deprecated:       deprecationWarning(definition, version),
			DeprecatedAlways: true,
			Verbs:            []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		},
	}

	// A terminating definition only lets its objects be read and deleted.
	if definition.HasCondition(apiextensionsv1.Terminating) {
		kind.Presentation.Verbs = []string{"delete", "deletecollection", "get", "list", "watch"}
		kind.Create.DisabledReason = "create not allowed while custom resource definition is terminating"
	}

	fields := version.SelectableFields
	if m.NoSelectableFields {
		fields = nil
	}
	for _, f := range fields {
		kind.Presentation.Selectable = append(kind.Presentation.Selectable,
			registry.SelectableField{Label: f.JSONPath[1:], Path: f.JSONPath})
	}

	kind.Document, kind.MergeType = compiled.newDocument(), compiled.mergeType
	kind.Document.TableRow = table.rowCells
	compiled.addSubresources(kind)
	kind.Parts = specStatusAccessors(kind.HasStatus())
	kind.Create.Warnings = func(o registry.Object) []string { return finalizerWarnings(o.GetFinalizers(), nil) }
	kind.Update.Warnings = func(o, old registry.Object) []string {
		return finalizerWarnings(o.GetFinalizers(), old.GetFinalizers())
	}
	return kind
}

// storageVersion returns the name of the version in which objects are stored.
func storageVersion(definition *CRD) string {
	for i := range definition.Spec.Versions {
		if definition.Spec.Versions[i].Storage {
			return definition.Spec.Versions[i].Name
		}
	}
	return ""
}

// deprecationWarning returns the deprecation warning of a version, or "" if the version is not
// deprecated. The default warning recommends the latest served version.
func deprecationWarning(definition *CRD, crdVersion *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if !crdVersion.Deprecated {
		return ""
	}
	if crdVersion.DeprecationWarning != nil {
		return *crdVersion.DeprecationWarning
	}
	replacement := ""
	for i := range definition.Spec.Versions {
		candidate := &definition.Spec.Versions[i]
		isLater := version.CompareKubeAwareVersionStrings(crdVersion.Name, candidate.Name) < 0
		isLatest := replacement == "" || version.CompareKubeAwareVersionStrings(replacement, candidate.Name) < 0
		if candidate.Served && !candidate.Deprecated && isLater && isLatest {
			replacement = candidate.Name
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", definition.Spec.Group, crdVersion.Name, definition.Spec.Names.Kind)
	if replacement != "" {
		text += fmt.Sprintf("; use %s/%s %s", definition.Spec.Group, replacement, definition.Spec.Names.Kind)
	}
	return text
}

package kind

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// family holds the versions of one definition.
type family struct {
	group          string
	kind           string
	storageVersion string
	converter      Conversion                // nil if versions differ only in their apiVersion
	versions       map[string]*versionSchema // by the name of the version
}

// newFamily returns the versions of a definition. Their schemas are read and compiled on first use.
func (m *Maker) newFamily(definition *CRD) *family {
	versions := &family{
		group:          definition.Spec.Group,
		kind:           definition.Spec.Names.Kind,
		storageVersion: storageVersion(definition),
		versions:       map[string]*versionSchema{},
	}
	if c := definition.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter && m.Conversion != nil {
		versions.converter = m.Conversion(definition)
	}
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		versions.versions[v.Name] = newVersionSchema(m, versions, definition, v)
	}
	return versions
}

// versionSchema is the schema of one version, with everything that is compiled from it.
type versionSchema struct {
	*family
	maker *Maker
	// readSchema reads the schema from the store. The schema is large, and only compilation needs
	// it. readSchema returns nil if there is no schema.
	readSchema      func() (*apiextensionsv1.JSONSchemaProps, error)
	preserveUnknown bool
	version         string
	scale           *apiextensionsv1.CustomResourceSubresourceScale // nil without the subresource scale
	status          bool                                            // whether the subresource status exists

	// The following are compiled on first use.

	// program is the schema in the form that processes documents.
	program *schema.Lazy
	// rules returns the compiled CEL rules, or nil if the schema has none.
	rules func() (*rules.Rules, error)
	// merge returns the merge rules of server-side apply. They are empty if the schema cannot be
	// read.
	merge func() mergeSchema
}

// newVersionSchema returns the schema of a version.
func newVersionSchema(maker *Maker, f *family, d *CRD, version *apiextensionsv1.CustomResourceDefinitionVersion) *versionSchema {
	compiled := &versionSchema{family: f, maker: maker, preserveUnknown: d.Spec.PreserveUnknownFields, version: version.Name}
	compiled.readSchema = func() (*apiextensionsv1.JSONSchemaProps, error) { return d.Schema(version.Name) }
	if version.Subresources != nil {
		compiled.scale = version.Subresources.Scale
		compiled.status = version.Subresources.Status != nil
	}
	compiled.program = schema.NewLazy(func() (*schema.Program, error) {
		props, err := compiled.readSchema()
		if err != nil {
			return nil, err
		}
		return maker.patterns.Compile(props)
	})
	compiled.rules = sync.OnceValues(func() (*rules.Rules, error) {
		props, err := compiled.readSchema()
		if err != nil || props == nil {
			return nil, err
		}
		program, err := compiled.program.Get()
		if err != nil {
			return nil, err
		}
		return maker.Rules.Compile(props, program), nil
	})
	compiled.merge = sync.OnceValue(func() mergeSchema {
		props, err := compiled.readSchema()
		if err != nil {
			return mergeSchema{} // validate reports the error
		}
		return newMergeSchema(props, compiled.preserveUnknown)
	})
	return compiled
}

// newDocument returns what the server needs to read and write objects of this version.
func (s *versionSchema) newDocument() *registry.Document {
	return &registry.Document{
		Normalize:         s.normalize,
		EstimateCost:      s.estimateCost,
		ToServed:          s.toServed,
		ParseServed:       s.parseServed,
		ToStored:          s.toStored,
		Convert:           s.convertDocuments,
		Validate:          s.validate,
		ConversionWebhook: s.converter != nil && len(s.versions) > 1,
	}
}

// estimateCost implements Document.EstimateCost. If the schema cannot be compiled, the cost is the
// length of the document.
func (s *versionSchema) estimateCost(doc []byte, cbor bool) int {
	program, err := s.program.Get()
	if err != nil {
		return len(doc)
	}
	return program.EstimateSize(doc, cbor)
}

// validate implements Document.Validate. It checks the object against the schema, and then
// evaluates the CEL rules of the schema, unless the schema's errors make them meaningless.
func (s *versionSchema) validate(ctx context.Context, documentWrite registry.DocumentWrite) field.ErrorList {
	object, err := parseWithFractions(documentWrite)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	defer object.Release()
	var old *tape.Doc // nil for a create
	if documentWrite.OldJSON != nil {
		if old, err = tape.Parse(documentWrite.OldJSON); err != nil {
			return field.ErrorList{field.InternalError(nil, err)}
		}
		defer old.Release()
	}
	errs, err := s.checkSchema(documentWrite, object, old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	ruleSet, err := s.rules()
	if err != nil {
		return append(errs, field.InternalError(nil, err))
	}
	if structuralErr := schema.StructuralError(slices.Concat(documentWrite.MetadataErrors, errs)); structuralErr != nil {
		if ruleSet != nil {
			errs = append(errs, structuralErr)
		}
		return errs
	}
	return append(errs, ruleSet.Evaluate(ctx, object, old, documentWrite.Warn, documentWrite.BeforeCostlyRules)...)
}

// parseWithFractions parses the JSON of a write in the form of jsonWithFractions. The caller
// releases the result.
func parseWithFractions(w registry.DocumentWrite) (*tape.Doc, error) {
	data, err := jsonWithFractions(w)
	if err != nil {
		return nil, err
	}
	return tape.Parse(data)
}

// checkSchema returns the errors of an object according to the schema, without the CEL rules. old
// is the live object, or nil for a create. The error is set if the schema cannot be compiled.
func (s *versionSchema) checkSchema(documentWrite registry.DocumentWrite, object, old *tape.Doc) (field.ErrorList, error) {
	program, err := s.program.Get()
	if err != nil {
		return nil, err
	}
	statusOnly := documentWrite.Subresource == "status"
	check := program.Check
	if statusOnly {
		check = program.CheckStatus
	}
	// Ratcheting tolerates the errors of values that an update does not change.
	ratcheting := !s.maker.Rules.NoRatcheting
	report := check(object, old, ratcheting, documentWrite.BeforeCostlyRules)
	if old != nil && ratcheting {
		s.maker.Rules.Metrics.Compared(report.Compared)
	}
	return report.All(s.scaleErrors(documentWrite.Object, statusOnly)...), nil
}

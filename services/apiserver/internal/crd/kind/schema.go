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
	converter      Conversion // nil: versions differ only in their apiVersion
	versions       map[string]*versionSchema
}

// newFamily returns the versions of a definition. Their schemas are read and compiled on first use.
func (m *Maker) newFamily(d *CRD) *family {
	f := &family{group: d.Spec.Group, kind: d.Spec.Names.Kind, storageVersion: storageVersion(d), versions: map[string]*versionSchema{}}
	if c := d.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter && m.Conversion != nil {
		f.converter = m.Conversion(d)
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		f.versions[v.Name] = newVersionSchema(m, f, d, v)
	}
	return f
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
	scale           *apiextensionsv1.CustomResourceSubresourceScale
	status          bool

	// The following are compiled on first use.
	program *schema.Lazy
	rules   func() (*rules.Rules, error) // nil Rules if the schema has none
	merge   func() mergeSchema
}

// newVersionSchema returns the schema of a version.
func newVersionSchema(m *Maker, f *family, d *CRD, v *apiextensionsv1.CustomResourceDefinitionVersion) *versionSchema {
	s := &versionSchema{family: f, maker: m, preserveUnknown: d.Spec.PreserveUnknownFields, version: v.Name}
	s.readSchema = func() (*apiextensionsv1.JSONSchemaProps, error) { return d.Schema(v.Name) }
	if v.Subresources != nil {
		s.scale = v.Subresources.Scale
		s.status = v.Subresources.Status != nil
	}
	s.program = schema.NewLazy(func() (*schema.Program, error) {
		props, err := s.readSchema()
		if err != nil {
			return nil, err
		}
		return m.patterns.Compile(props)
	})
	s.rules = sync.OnceValues(func() (*rules.Rules, error) {
		props, err := s.readSchema()
		if err != nil || props == nil {
			return nil, err
		}
		p, err := s.program.Get()
		if err != nil {
			return nil, err
		}
		return m.Rules.Compile(props, p), nil
	})
	s.merge = sync.OnceValue(func() mergeSchema {
		props, err := s.readSchema()
		if err != nil {
			return mergeSchema{}
		}
		return newMergeSchema(props, s.preserveUnknown)
	})
	return s
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

// estimateCost implements registry.Document.
func (s *versionSchema) estimateCost(doc []byte, cbor bool) int {
	p, err := s.program.Get()
	if err != nil {
		return len(doc)
	}
	return p.Weight(doc, cbor)
}

// validate implements registry.Document.
func (s *versionSchema) validate(ctx context.Context, w registry.DocumentWrite) field.ErrorList {
	internalError := func(err error) field.ErrorList { return field.ErrorList{field.InternalError(nil, err)} }
	p, err := s.program.Get()
	if err != nil {
		return internalError(err)
	}
	data, err := jsonWithFractions(w)
	if err != nil {
		return internalError(err)
	}
	d, err := tape.Parse(data)
	if err != nil {
		return internalError(err)
	}
	defer d.Release()
	var old *tape.Doc
	if w.OldJSON != nil {
		if old, err = tape.Parse(w.OldJSON); err != nil {
			return internalError(err)
		}
		defer old.Release()
	}
	var report schema.Report
	ratcheting := !s.maker.Rules.NoRatcheting
	if w.Subresource == "status" {
		report = p.CheckStatus(d, old, ratcheting, w.BeforeCostlyRules)
	} else {
		report = p.Check(d, old, ratcheting, w.BeforeCostlyRules)
	}
	if old != nil && ratcheting {
		s.maker.Rules.Metrics.Compared(report.Compared)
	}
	errs := report.All(s.scaleErrors(w.Object, w.Subresource == "status")...)
	r, err := s.rules()
	if err != nil {
		return append(errs, internalError(err)...)
	}
	if structuralErr := schema.StructuralError(slices.Concat(w.MetadataErrors, errs)); structuralErr != nil {
		if r != nil {
			errs = append(errs, structuralErr)
		}
		return errs
	}
	return append(errs, r.Evaluate(ctx, d, old, w.Warn, w.BeforeCostlyRules)...)
}

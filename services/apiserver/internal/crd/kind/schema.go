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

// patterns holds the Room that the schemas of all definitions share.
type patterns struct {
	once sync.Once
	room *schema.Room
}

// get returns the Room. It creates the Room on first use.
func (p *patterns) get() *schema.Room {
	p.once.Do(func() { p.room = schema.NewRoom() })
	return p.room
}

// family holds the versions of one definition.
type family struct {
	group    string
	kind     string
	stored   string     // the storage version
	convert  Conversion // nil: versions differ only in their apiVersion
	versions map[string]*versionSchema
}

// family returns the versions of a definition. Their schemas are read and compiled on first use.
func (m *Maker) family(d *CRD) *family {
	f := &family{group: d.Spec.Group, kind: d.Spec.Names.Kind, stored: storageVersion(d), versions: map[string]*versionSchema{}}
	if c := d.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter && m.Conversion != nil {
		f.convert = m.Conversion(d)
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		f.versions[v.Name] = newSchema(m, f, d, v)
	}
	return f
}

// versionSchema is the schema of one version, with everything that is compiled from it.
type versionSchema struct {
	*family
	maker *Maker
	// props reads the schema from the store. The schema is large, and only compilation needs it.
	// props returns nil if there is no schema.
	props    func() (*apiextensionsv1.JSONSchemaProps, error)
	lenient  bool
	version  string
	scale    *apiextensionsv1.CustomResourceSubresourceScale
	status   bool
	hasRules bool // the schema has rules; set by rules

	program *schema.Lazy
	rules   func() (*rules.Rules, error)
	merge   func() mergeRules
}

// newSchema returns the schema of a version.
func newSchema(m *Maker, f *family, d *CRD, v *apiextensionsv1.CustomResourceDefinitionVersion) *versionSchema {
	s := &versionSchema{family: f, maker: m, lenient: d.Spec.PreserveUnknownFields, version: v.Name}
	s.props = func() (*apiextensionsv1.JSONSchemaProps, error) { return d.Schema(v.Name) }
	if v.Subresources != nil {
		s.scale = v.Subresources.Scale
		s.status = v.Subresources.Status != nil
	}
	s.program = schema.NewLazy(func() (*schema.Program, error) {
		props, err := s.props()
		if err != nil {
			return nil, err
		}
		return m.patterns.get().Compile(props)
	})
	s.rules = sync.OnceValues(func() (*rules.Rules, error) {
		props, err := s.props()
		if err != nil || props == nil {
			return nil, err
		}
		p, err := s.program.Get()
		if err != nil {
			return nil, err
		}
		s.hasRules = hasRules(props)
		return m.Rules.Compile(props, p), nil
	})
	s.merge = sync.OnceValue(func() mergeRules {
		props, err := s.props()
		if err != nil {
			return mergeRules{}
		}
		return newMergeRules(props, s.lenient)
	})
	return s
}

// document returns what the server needs to read and write objects of this version.
func (s *versionSchema) document() *registry.Document {
	return &registry.Document{
		Shape: s.shape, Weight: s.weight, Serve: s.serve, Open: s.open, Store: s.store, Convert: s.convertAll, Validate: s.validate, Remote: s.convert != nil && len(s.versions) > 1,
	}
}

// weight implements registry.Document.
func (s *versionSchema) weight(doc []byte, cbor bool) int {
	p, err := s.program.Get()
	if err != nil {
		return len(doc)
	}
	return p.Weight(doc, cbor)
}

// validate implements registry.Document.
func (s *versionSchema) validate(ctx context.Context, w registry.DocumentWrite) field.ErrorList {
	unreadable := func(err error) field.ErrorList { return field.ErrorList{field.InternalError(nil, err)} }
	p, err := s.program.Get()
	if err != nil {
		return unreadable(err)
	}
	d, err := tape.Parse(w.Text)
	if err != nil {
		return unreadable(err)
	}
	defer d.Release()
	var was *tape.Doc
	if w.Old != nil {
		if was, err = tape.Parse(w.Old); err != nil {
			return unreadable(err)
		}
		defer was.Release()
	}
	var report schema.Report
	ratchets := !s.maker.Rules.NoRatcheting
	if w.Subresource == "status" {
		report = p.CheckStatus(d, was, ratchets, w.OnCostly)
	} else {
		report = p.Check(d, was, ratchets, w.OnCostly)
	}
	if was != nil && ratchets {
		s.maker.Rules.Metrics.Compared(report.Compared)
	}
	errs := report.All(s.scaleErrors(w.Object, w.Subresource == "status")...)
	r, err := s.rules()
	if err != nil {
		return append(errs, unreadable(err)...)
	}
	if blocked := schema.Blocking(slices.Concat(w.Found, errs)); blocked != nil {
		if s.hasRules {
			errs = append(errs, blocked)
		}
		return errs
	}
	return append(errs, r.Evaluate(ctx, d, was, w.Warn, w.OnCostly)...)
}

package schema

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/status"
)

// RulesBudget is the cost limit of all rules that are evaluated together, in CEL cost units.
const RulesBudget = 10_000_000

// RulesOfDefault evaluates the rules of a schema on one of its default values. It returns the
// remaining budget. A negative budget ends the whole check. root states that s is the schema of a
// resource.
type RulesOfDefault func(
	ctx context.Context,
	path *field.Path,
	s *v1.JSONSchemaProps,
	root bool,
	value []byte,
	budget int64,
) (field.ErrorList, int64)

// CheckDefaults checks the default values in a resource's schema against the schema, which must be
// structural. path is the path of the schema. requirePruned rejects defaults with unknown fields.
// rules may be nil. Like Kubernetes, CheckDefaults ignores defaults below additionalProperties.
func CheckDefaults(
	ctx context.Context,
	path *field.Path,
	props *v1.JSONSchemaProps,
	requirePruned bool,
	rules RulesOfDefault,
) field.ErrorList {
	if !anyDefault(props) {
		return nil
	}
	resource := *props
	resource.XEmbeddedResource = true // the resource itself has a type and metadata
	program, err := compile(&resource, new(PatternBudget), true)
	if err != nil {
		return field.ErrorList{field.Invalid(path, "", err.Error())}
	}
	c := defaultsCheck{ctx: ctx, program: program, requirePruned: requirePruned, rules: rules, budget: RulesBudget}
	c.checkNode(path, &resource, Root, &enclosingResource{root: Root})
	return c.errs
}

// anyDefault reports whether a schema has a default to check.
func anyDefault(props *v1.JSONSchemaProps) bool {
	if hasDefault(props) || props.Items != nil && props.Items.Schema != nil && anyDefault(props.Items.Schema) {
		return true
	}
	for _, p := range props.Properties {
		if anyDefault(&p) {
			return true
		}
	}
	return false
}

// defaultsCheck checks the defaults of one schema.
type defaultsCheck struct {
	ctx           context.Context
	program       *Program
	requirePruned bool
	rules         RulesOfDefault
	budget        int64
	spent         int // by keywords, for all defaults
	errs          field.ErrorList
}

// enclosingResource is the resource that contains a schema.
type enclosingResource struct {
	root NodeIndex
	// meta states that the schema describes the type or metadata of the resource, or a part of it.
	// steps is the path to it.
	meta  bool
	steps []string // property names; "" for an item
}

// child returns the resource that contains the schema of a property, or of an item if name is "".
func (s *enclosingResource) child(name string, meta bool) *enclosingResource {
	return &enclosingResource{root: s.root, meta: s.meta || meta, steps: append(slices.Clone(s.steps), name)}
}

// wrap returns the resource with a value at the steps.
func (s *enclosingResource) wrap(value []byte) []byte {
	for i := len(s.steps) - 1; i >= 0; i-- {
		name := s.steps[i]
		switch {
		case name == "":
			value = slices.Concat([]byte{'['}, value, []byte{']'})
		case i > 0:
			value = slices.Concat([]byte{'{'}, jsontext.AppendString(nil, name), []byte{':'}, value, []byte{'}'})
		default:
			value = resourceWithMember(name, value)
		}
	}
	return value
}

// resourceWithMember returns a resource with its type and one more member.
func resourceWithMember(name string, value []byte) []byte {
	out := append(append(jsontext.AppendString([]byte{'{'}, name), ':'), value...)
	if name != "apiVersion" {
		out = append(out, `,"apiVersion":"validation/v1"`...)
	}
	if name != "kind" {
		out = append(out, `,"kind":"Validation"`...)
	}
	return append(out, '}')
}

func (c *defaultsCheck) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// checkNode checks the default of a schema, and the defaults below it.
func (c *defaultsCheck) checkNode(path *field.Path, schemaProps *v1.JSONSchemaProps, node NodeIndex, enclosing *enclosingResource) {
	schemaNode := &c.program.nodes[node]
	if schemaNode.isEmbedded {
		enclosing = &enclosingResource{root: node}
	}
	if hasDefault(schemaProps) {
		c.checkDefault(path.Child("default"), schemaProps, node, enclosing)
	}
	if schemaNode.items != NoNode && c.budget >= 0 {
		c.checkNode(path.Child("items"), schemaProps.Items.Schema, schemaNode.items, enclosing.child("", false))
	}
	for i, name := range slices.Sorted(maps.Keys(schemaProps.Properties)) {
		if c.budget < 0 {
			return
		}
		sub := schemaProps.Properties[name]
		meta := schemaNode.isEmbedded && (name == "metadata" || name == "apiVersion" || name == "kind")
		c.checkNode(path.Child("properties").Key(name), &sub, schemaNode.props[i].node, enclosing.child(name, meta))
	}
}

// checkDefault checks one default. It stops after the first group of checks that reports errors.
func (c *defaultsCheck) checkDefault(path *field.Path, schemaProps *v1.JSONSchemaProps, node NodeIndex, enclosing *enclosingResource) {
	// 1. Parse the default.
	doc, err := tape.Parse(schemaProps.Default.Raw)
	if err == nil && !doc.Clean() {
		doc, err = doc.Canonicalize()
	}
	if err != nil {
		c.add(field.Invalid(path, string(schemaProps.Default.Raw), err.Error()))
		return
	}

	// 2. Check its metadata and unknown fields.
	if enclosing.meta {
		if problem := c.checkMetadata(doc, enclosing); problem != nil {
			c.add(field.Invalid(path, doc.Any(tape.Root), fmt.Sprintf("must result in valid metadata: %v", problem)))
			return
		}
	} else {
		if c.requirePruned && c.hasUnknownFields(doc, node) {
			c.add(field.Invalid(path, doc.Any(tape.Root), "must not have unknown fields"))
		}
		cleaned, err := c.program.cleanEmbedded(doc, node, path)
		if err != nil {
			c.add(asFieldError(path, err))
			return
		}
		doc = cleaned
		w := walker{program: c.program, doc: doc, base: path}
		w.checkEmbeddedBelow(node, tape.Root)
		if len(w.errs) > 0 {
			c.add(w.errs...)
			return
		}
	}

	// 3. Check it against the keywords of the schema.
	keywords := checker{Comparer: Comparer{program: c.program, doc: doc}, base: path, spent: c.spent}
	errs := keywords.checkAll(node, tape.Root, tape.None)
	c.spent = keywords.spent
	if c.spent > c.program.maxCost {
		c.budget = -1
	}
	if len(errs) > 0 {
		c.add(errs...)
		return
	}

	// 4. Evaluate the rules.
	if c.rules != nil {
		var errs field.ErrorList
		errs, c.budget = c.rules(c.ctx, path, schemaProps, node == enclosing.root, doc.Raw(), c.budget)
		c.add(errs...)
	}
}

// asFieldError returns err if it is a *field.Error, and otherwise an error at path.
func asFieldError(path *field.Path, err error) *field.Error {
	if e, ok := err.(*field.Error); ok {
		return e
	}
	return field.Invalid(path, "", err.Error())
}

// hasUnknownFields reports whether a default has fields that its schema does not allow.
func (c *defaultsCheck) hasUnknownFields(d *tape.Doc, node NodeIndex) bool {
	s := normalizer{program: c.program, doc: d, raw: d.Raw(), operations: pruneUnknown}
	s.normalizeValue(node, tape.Root, prune)
	return s.out != nil
}

// cleanEmbedded returns a document with the metadata of embedded resources cleaned. It returns a
// *field.Error if the metadata is malformed.
func (p *Program) cleanEmbedded(doc *tape.Doc, at NodeIndex, base *field.Path) (*tape.Doc, error) {
	s := normalizer{program: p, doc: doc, raw: doc.Raw(), operations: cleanMetadata, base: base}
	s.normalizeValue(at, tape.Root, keep)
	if s.err != nil || s.out == nil {
		return doc, s.err
	}
	return tape.Parse(s.finish())
}

// checkMetadata checks a default of a resource's type or metadata, within a resource that has
// nothing else.
func (c *defaultsCheck) checkMetadata(value *tape.Doc, enclosing *enclosingResource) error {
	doc, err := tape.Parse(enclosing.wrap(value.Raw()))
	if err != nil {
		return err
	}
	cleaned, err := c.program.cleanEmbedded(doc, enclosing.root, nil)
	if err != nil {
		return err
	}
	w := walker{program: c.program, doc: cleaned}
	w.checkEmbeddedBelow(enclosing.root, tape.Root)
	if len(w.errs) > 0 {
		return status.Aggregated(w.errs)
	}
	return nil
}

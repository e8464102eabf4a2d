package rules

import (
	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/crd/schema"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Rules holds the rules of a resource's schema. A nil *Rules has none.
type Rules struct {
	program *schema.Program
	top     *level
	metrics *Metrics
	// ratchets is false when the compiler has NoRatcheting.
	ratchets bool
}

// level holds the rules of a schema and of those below it.
type level struct {
	rules []rule
	shape *shape
	place schema.NodeIndex
	// untyped reports that a schema without a CEL type has rules.
	untyped bool
	// usesOld reports whether a rule of the schema refers to the old value.
	usesOld bool
	props   map[string]*level
	items   *level
	values  *level
}

// rule is a compiled rule.
type rule struct {
	check    *program
	message  *program // of the messageExpression, or nil
	err      error    // why check is nil
	optional bool     // oldSelf is an optional value
	text     string   // the message, or else the rule
	fixed    string   // message without a messageExpression
	reason   v1.FieldValueErrorReason
	path     string // of the field within the value
	// messageText is the messageExpression.
	messageText string
}

// Compile returns the rules of a schema, or nil if it has none. p is the program of the same
// schema. Without it, no errors of unchanged values are tolerated. The result does not reference
// the schema.
func (c *Compiler) Compile(s *v1.JSONSchemaProps, p *schema.Program) *Rules {
	at := schema.Root
	if p == nil {
		at = schema.NoNode
	}
	top := c.session().compile(s, shapeOf(s, true), declare(s, true), p, at)
	if top == nil {
		return nil
	}
	return &Rules{program: p, top: top, metrics: c.Metrics, ratchets: !c.NoRatcheting}
}

// compile returns the rules of a schema and below, or nil. h is the shape of the schema's values.
// self is their type, nil if they have no type in CEL. Rules for such values cannot be compiled, so
// every value is rejected. Properties without a type are ignored.
func (c *session) compile(s *v1.JSONSchemaProps, h *shape, self *decl, p *schema.Program, at schema.NodeIndex) *level {
	if !hasRules(s) {
		return nil
	}
	l := &level{shape: h, place: at, props: map[string]*level{}}
	// nodeBelow returns the node that next finds below at, if the program is known.
	nodeBelow := func(next func(schema.NodeIndex) schema.NodeIndex) schema.NodeIndex {
		if at == schema.NoNode {
			return at
		}
		return next(at)
	}
	for name, sub := range s.Properties {
		below := nodeBelow(func(at schema.NodeIndex) schema.NodeIndex { return p.Property(at, name) })
		t := c.ofProperty(self, name, &sub)
		if t == nil {
			continue
		}
		if sub := c.compile(&sub, h.below(name, &sub), t, p, below); sub != nil {
			l.props[name] = sub
		}
	}
	var elem *decl
	if self != nil {
		elem = self.elem
	}
	if a := s.AdditionalProperties; a != nil && a.Schema != nil {
		l.values = c.compile(a.Schema, h.below("", a.Schema), elem, p, nodeBelow(p.Values))
	}
	if s.Items != nil && s.Items.Schema != nil {
		l.items = c.compile(s.Items.Schema, h.below("", s.Items.Schema), elem, p, nodeBelow(p.Items))
	}
	if self == nil {
		l.untyped = len(s.XValidations) > 0
		return l
	}
	sc := &scope{c, self}
	for i := range s.XValidations {
		r := &s.XValidations[i]
		if hasText(r.Rule) {
			l.rules = append(l.rules, sc.rule(s, r))
			l.usesOld = l.usesOld || l.rules[len(l.rules)-1].usesOld()
		}
	}
	return l
}

// ofProperty returns the type of a property. A property whose name cannot be escaped is not a field
// in CEL, but may have rules of its own.
func (c *session) ofProperty(self *decl, name string, s *v1.JSONSchemaProps) *decl {
	escaped, ok := celenv.Escape(name)
	if !ok {
		return declare(s, s.XEmbeddedResource)
	}
	if self == nil {
		return nil
	}
	return self.fields[escaped]
}

// rule compiles a rule of the schema in.
func (s *scope) rule(in *v1.JSONSchemaProps, r *v1.ValidationRule) rule {
	out := rule{optional: r.OptionalOldSelf != nil && *r.OptionalOldSelf, text: ruleOrMessage(r), fixed: fixedMessage(r), messageText: r.MessageExpression}
	if r.Reason != nil {
		out.reason = *r.Reason
	}
	if r.FieldPath != "" {
		if at, _, err := ValidFieldPath(r.FieldPath, in, true); err == nil {
			out.path = at.String()
		}
	}
	out.check, out.err = s.compile(r.Rule, out.optional, cel.BoolType)
	if out.err != nil {
		return out
	}
	if r.MessageExpression != "" {
		// An invalid messageExpression was rejected with the definition. The fixed message replaces
		// it.
		out.message, _ = s.compile(r.MessageExpression, out.optional, cel.StringType)
	}
	return out
}

// usesOld reports whether the rule refers to oldSelf.
func (r *rule) usesOld() bool { return r.check != nil && r.check.usesOldSelf }

// failure returns the error of a violated rule.
func (r *rule) failure(at *field.Path, typeName, message string) *field.Error {
	if r.path != "" {
		at = at.Child(r.path)
	}
	switch r.reason {
	case v1.FieldValueForbidden:
		return field.Forbidden(at, message)
	case v1.FieldValueRequired:
		return field.Required(at, message)
	case v1.FieldValueDuplicate:
		return field.Duplicate(at, typeName)
	}
	return field.Invalid(at, typeName, message)
}

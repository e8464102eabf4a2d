package typecheck

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/admission/expressions"
)

// Schemas are those of the kinds that are served at one time. They are for one
// goroutine.
type Schemas interface {
	// Kinds are the kinds of a resource, which may be called by its plural or its
	// singular. As clients of Kubernetes have it, the core group stands for every group.
	Kinds(group, version, resource string) []schema.GroupVersionKind
	// Schema of a kind's objects; nil where there is none.
	Schema(schema.GroupVersionKind) *spec.Schema
	// Follow returns what a reference in a schema stands for, and its name, which is
	// empty for what is none.
	Follow(*spec.Schema) (*spec.Schema, string)
}

// Bounds of what a status tells, in bytes: of one expression, and of all together. An
// object has to have room for it.
const (
	maxWarning  = 16 << 10
	maxWarnings = 256 << 10
)

// check is the check of policies against schemas, of which it keeps the types.
type check struct {
	compiler *expressions.Compiler
	schemas  Schemas
	declared map[declaration]declared
}

// declaration is the type of a kind's objects; those of parameters have names of their
// own.
type declaration struct {
	kind  schema.GroupVersionKind
	param bool
}

type declared struct {
	root  *cel.Type
	types objectTypes
}

func newCheck(c *expressions.Compiler, s Schemas) *check {
	return &check{compiler: c, schemas: s, declared: map[declaration]declared{}}
}

// typeOf the objects of a kind, without a root where it is not known; ok tells whether
// there is a schema.
func (c *check) typeOf(d declaration) (of declared, ok bool) {
	if of, ok = c.declared[d]; ok {
		return of, true
	}
	s := c.schemas.Schema(d.kind)
	if s == nil {
		return declared{}, false
	}
	of.types = objectTypes{}
	name := d.kind.Kind + "0"
	if d.param {
		name = d.kind.Kind + "1"
	}
	of.root = (&declarer{follow: c.schemas.Follow, types: of.types, inside: map[string]bool{}}).declare(s, name, true)
	c.declared[d] = of
	return of, true
}

// subject is a kind that expressions are checked for.
type subject struct {
	kind   schema.GroupVersionKind
	policy *expressions.Policy
}

// warnings of a policy, for its validations and their messages in their order.
func (c *check) warnings(s *admissionv1.ValidatingAdmissionPolicySpec) []admissionv1.ExpressionWarning {
	sees := expressions.Sees{Params: s.ParamKind != nil, Authorizer: true}
	subjects := c.subjects(s, sees)
	if len(subjects) == 0 {
		return nil
	}
	var out []admissionv1.ExpressionWarning
	left := maxWarnings
	tell := func(i int, field, expression string) {
		if left <= 0 {
			return
		}
		if text := warning(subjects, sees, expression); text != "" {
			out = append(out, admissionv1.ExpressionWarning{FieldRef: fmt.Sprintf("spec.validations[%d].%s", i, field), Warning: text})
			left -= len(text)
		}
	}
	for i := range s.Validations {
		v := &s.Validations[i]
		tell(i, "expression", v.Expression)
		if v.MessageExpression != "" {
			tell(i, "messageExpression", v.MessageExpression)
		}
	}
	return out
}

// subjects are the kinds of a policy whose schemas are known.
func (c *check) subjects(s *admissionv1.ValidatingAdmissionPolicySpec, sees expressions.Sees) []subject {
	var params declared
	if kind := paramKind(s.ParamKind); !kind.Empty() {
		params, _ = c.typeOf(declaration{kind, true})
	}
	var out []subject
	for _, kind := range kindsOf(s.MatchConstraints, c.schemas.Kinds) {
		of, ok := c.typeOf(declaration{kind: kind})
		if !ok {
			continue
		}
		known := objectTypes{}
		for _, t := range []objectTypes{of.types, params.types} {
			for name, fields := range t {
				known[name] = fields
			}
		}
		p := c.compiler.Against(expressions.Objects{Object: of.root, Params: params.root, Types: known})
		for i := range s.Variables {
			// What is wrong with a variable is not told of: it may be anything then.
			_ = p.Declare(sees, s.Variables[i].Name, s.Variables[i].Expression)
		}
		out = append(out, subject{kind, p})
	}
	return out
}

// warning is what is wrong with an expression, for one kind after the other; empty when
// that is nothing.
func warning(subjects []subject, sees expressions.Sees, expression string) string {
	var texts []string
	for _, s := range subjects {
		issues, err := s.policy.Issues(sees, expression)
		if err != nil {
			issues = fmt.Sprintf("type checking error: %v", err)
		}
		if issues != "" {
			texts = append(texts, fmt.Sprintf("%v: %s\n", s.kind, issues))
		}
	}
	return shortened(strings.Join(texts, "\n"))
}

// shortened text ends at the end of a line.
func shortened(text string) string {
	if len(text) <= maxWarning {
		return text
	}
	text = text[:maxWarning]
	return text[:strings.LastIndexByte(text, '\n')+1] + "..."
}

// numbers are what the names of types that Kubernetes makes up end with.
var numbers = regexp.MustCompile(`([A-Za-z])[0-9]+([.'),])`)

// same tells whether two lists of warnings say the same. The names of types in them are
// made up anew each time by some of those who write them.
func same(a, b []admissionv1.ExpressionWarning) bool {
	if len(a) != len(b) {
		return false
	}
	plain := func(text string) string { return numbers.ReplaceAllString(text, "$1$2") }
	for i := range a {
		if a[i].FieldRef != b[i].FieldRef || a[i].Warning != b[i].Warning && plain(a[i].Warning) != plain(b[i].Warning) {
			return false
		}
	}
	return true
}

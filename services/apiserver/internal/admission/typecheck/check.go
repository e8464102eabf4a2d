package typecheck

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/cel/expressions"
)

// Schemas gives access to the schemas of the kinds that are served at one time. It is not safe for
// concurrent use.
type Schemas interface {
	// Kinds returns the kinds of a resource, given by its plural or singular name. As in
	// Kubernetes' clients, the core group stands for every group.
	Kinds(group, version, resource string) []schema.GroupVersionKind
	// Schema returns the schema of a kind's objects, or nil.
	Schema(schema.GroupVersionKind) *spec.Schema
	// Follow resolves a reference in a schema. It returns the target and its name, which is empty
	// if there is no reference.
	Follow(*spec.Schema) (*spec.Schema, string)
}

// Bounds of the warnings in a status, in bytes, for one expression and in total. The object must
// have room for them.
const (
	maxWarning  = 16 << 10
	maxWarnings = 256 << 10
)

// check checks policies against schemas and caches the types.
type check struct {
	compiler *expressions.Compiler
	schemas  Schemas
	declared map[declaration]declaredTypes
}

// declaration identifies the type of a kind's objects. Types of parameters have separate names.
type declaration struct {
	kind  schema.GroupVersionKind
	param bool
}

// declaredTypes holds the type of an object and the types of its fields.
type declaredTypes struct {
	root  *cel.Type
	types objectTypes
}

func newCheck(c *expressions.Compiler, s Schemas) *check {
	return &check{compiler: c, schemas: s, declared: map[declaration]declaredTypes{}}
}

// typeOf returns the types of a kind's objects. The root is nil if the objects are not visible to CEL.
// ok reports whether there is a schema.
func (c *check) typeOf(d declaration) (declared declaredTypes, ok bool) {
	declared, ok = c.declared[d]
	if ok {
		return declared, true
	}
	s := c.schemas.Schema(d.kind)
	if s == nil {
		return declaredTypes{}, false
	}
	declared.types = objectTypes{}
	name := d.kind.Kind + "0"
	if d.param {
		name = d.kind.Kind + "1"
	}
	declared.root = (&declarer{follow: c.schemas.Follow, types: declared.types, inside: map[string]bool{}}).declare(s, name, true)
	c.declared[d] = declared
	return declared, true
}

// subject is a kind for which expressions are checked.
type subject struct {
	kind   schema.GroupVersionKind
	policy *expressions.Policy
}

// warnings returns the warnings for a policy's validations and their messages, in order.
func (c *check) warnings(s *admissionv1.ValidatingAdmissionPolicySpec) []admissionv1.ExpressionWarning {
	variables := expressions.VariableSet{Params: s.ParamKind != nil, Authorizer: true}
	subjects := c.subjects(s, variables)
	if len(subjects) == 0 {
		return nil
	}
	var out []admissionv1.ExpressionWarning
	remaining := maxWarnings
	report := func(i int, field, expression string) {
		if remaining <= 0 {
			return
		}
		if text := warning(subjects, variables, expression); text != "" {
			out = append(out, admissionv1.ExpressionWarning{FieldRef: fmt.Sprintf("spec.validations[%d].%s", i, field), Warning: text})
			remaining -= len(text)
		}
	}
	for i := range s.Validations {
		v := &s.Validations[i]
		report(i, "expression", v.Expression)
		if v.MessageExpression != "" {
			report(i, "messageExpression", v.MessageExpression)
		}
	}
	return out
}

// subjects returns the kinds of a policy whose schemas are known.
func (c *check) subjects(s *admissionv1.ValidatingAdmissionPolicySpec, variables expressions.VariableSet) []subject {
	var params declaredTypes
	if kind := paramKind(s.ParamKind); !kind.Empty() {
		params, _ = c.typeOf(declaration{kind, true})
	}
	var out []subject
	for _, kind := range kindsOf(s.MatchConstraints, c.schemas.Kinds) {
		object, ok := c.typeOf(declaration{kind: kind})
		if !ok {
			continue
		}
		types := objectTypes{}
		for _, t := range []objectTypes{object.types, params.types} {
			for name, fields := range t {
				types[name] = fields
			}
		}
		p := c.compiler.WithTypes(expressions.ObjectTypes{Object: object.root, Params: params.root, Types: types})
		for i := range s.Variables {
			// Errors of variables are not reported. An invalid variable has a dynamic type.
			_ = p.Declare(variables, s.Variables[i].Name, s.Variables[i].Expression)
		}
		out = append(out, subject{kind, p})
	}
	return out
}

// warning returns the errors of an expression for all kinds, or "".
func warning(subjects []subject, variables expressions.VariableSet, expression string) string {
	var texts []string
	for _, s := range subjects {
		issues, err := s.policy.Issues(variables, expression)
		if err != nil {
			issues = fmt.Sprintf("type checking error: %v", err)
		}
		if issues != "" {
			texts = append(texts, fmt.Sprintf("%v: %s\n", s.kind, issues))
		}
	}
	return truncateLines(strings.Join(texts, "\n"))
}

// truncateLines truncates a text at the end of a line.
func truncateLines(text string) string {
	if len(text) <= maxWarning {
		return text
	}
	text = text[:maxWarning]
	return text[:strings.LastIndexByte(text, '\n')+1] + "..."
}

// numbers matches the numbers that end the generated type names of Kubernetes.
var numbers = regexp.MustCompile(`([A-Za-z])[0-9]+([.'),])`)

// equalWarnings reports whether two lists of warnings are equal. It ignores the numbers in type
// names, because some writers generate new ones each time.
func equalWarnings(a, b []admissionv1.ExpressionWarning) bool {
	if len(a) != len(b) {
		return false
	}
	withoutNumbers := func(text string) string { return numbers.ReplaceAllString(text, "$1$2") }
	for i := range a {
		if a[i].FieldRef != b[i].FieldRef || a[i].Warning != b[i].Warning && withoutNumbers(a[i].Warning) != withoutNumbers(b[i].Warning) {
			return false
		}
	}
	return true
}

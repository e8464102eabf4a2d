package typecheck

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/cel/expressions"
)

// Schemas gives access to the schemas of the served kinds, as of the time when it was created. It
// is not safe for concurrent use.
type Schemas interface {
	// Kinds returns the kinds of a resource, given by its plural or singular name. As in the
	// RESTMapper of Kubernetes, an empty group stands for every group.
	Kinds(group, version, resource string) []schema.GroupVersionKind
	// Schema returns the schema of a kind's objects, or nil.
	Schema(schema.GroupVersionKind) *spec.Schema
	// Follow resolves a schema that is a $ref. It returns the target and its name. It returns any
	// other schema unchanged with an empty name.
	Follow(*spec.Schema) (*spec.Schema, string)
}

// Bounds of the warnings in a policy's status, in bytes, so that the policy can still be stored.
const (
	maxWarning  = 16 << 10  // for one expression
	maxWarnings = 256 << 10 // for one policy
)

// checker checks policies against schemas. One checker checks many policies, because it caches the
// CEL types of the schemas.
type checker struct {
	compiler *expressions.Compiler
	schemas  Schemas
	types    map[typeKey]declaredTypes
}

// typeKey identifies the CEL types of a kind. A kind has other type names as a parameter than as
// the object of a request.
type typeKey struct {
	kind  schema.GroupVersionKind
	param bool
}

// declaredTypes holds the CEL types of a kind: the type of the object itself (root), and the fields
// of all object types in it. root is nil if the schema has no type that CEL can express.
type declaredTypes struct {
	root  *cel.Type
	types objectTypes
}

func newChecker(c *expressions.Compiler, s Schemas) *checker {
	return &checker{compiler: c, schemas: s, types: map[typeKey]declaredTypes{}}
}

// typesOf returns the CEL types of a kind. ok reports whether the kind has a schema. Type names
// begin with the name of the kind and a digit: "Deployment0" for an object, "Deployment1" for a
// parameter.
func (c *checker) typesOf(key typeKey) (declared declaredTypes, ok bool) {
	declared, ok = c.types[key]
	if ok {
		return declared, true
	}
	kindSchema := c.schemas.Schema(key.kind)
	if kindSchema == nil {
		return declaredTypes{}, false
	}
	declared.types = objectTypes{}
	name := key.kind.Kind + "0"
	if key.param {
		name = key.kind.Kind + "1"
	}
	typeDeclarer := &declarer{follow: c.schemas.Follow, types: declared.types, resolving: map[string]bool{}}
	declared.root = typeDeclarer.declare(kindSchema, name, true)
	c.types[key] = declared
	return declared, true
}

// matchedKind is a kind that a policy matches, and an environment in which the variables object and
// params have the types of that kind and of the policy's parameters.
type matchedKind struct {
	kind        schema.GroupVersionKind
	environment *expressions.Policy
}

// warnings returns the type errors in a policy's validations and message expressions, in order. The
// total size is bounded by maxWarnings.
func (c *checker) warnings(policy *admissionregistrationv1.ValidatingAdmissionPolicySpec) []admissionregistrationv1.ExpressionWarning {
	variables := expressions.VariableSet{Params: policy.ParamKind != nil, Authorizer: true}
	kinds := c.matchedKinds(policy, variables)
	if len(kinds) == 0 {
		return nil
	}
	var out []admissionregistrationv1.ExpressionWarning
	remaining := maxWarnings
	report := func(i int, field, expression string) {
		if remaining <= 0 {
			return
		}
		if text := typeErrors(kinds, variables, expression); text != "" {
			out = append(out, admissionregistrationv1.ExpressionWarning{FieldRef: fmt.Sprintf("spec.validations[%d].%s", i, field), Warning: text})
			remaining -= len(text)
		}
	}
	for i := range policy.Validations {
		v := &policy.Validations[i]
		report(i, "expression", v.Expression)
		if v.MessageExpression != "" {
			report(i, "messageExpression", v.MessageExpression)
		}
	}
	return out
}

// matchedKinds returns the kinds that a policy names and that have a schema.
func (c *checker) matchedKinds(policy *admissionregistrationv1.ValidatingAdmissionPolicySpec, variables expressions.VariableSet) []matchedKind {
	var params declaredTypes
	if kind := paramKind(policy.ParamKind); !kind.Empty() {
		params, _ = c.typesOf(typeKey{kind: kind, param: true})
	}
	var out []matchedKind
	for _, kind := range kindsOf(policy.MatchConstraints, c.schemas.Kinds) {
		object, ok := c.typesOf(typeKey{kind: kind})
		if !ok {
			continue
		}
		types := objectTypes{}
		maps.Copy(types, object.types)
		maps.Copy(types, params.types)
		environment := c.compiler.WithTypes(expressions.ObjectTypes{Object: object.root, Params: params.root, Types: types})
		for i := range policy.Variables {
			// Errors of variables are not reported. An invalid variable has a dynamic type.
			_ = environment.Declare(variables, policy.Variables[i].Name, policy.Variables[i].Expression)
		}
		out = append(out, matchedKind{kind: kind, environment: environment})
	}
	return out
}

// typeErrors returns the type errors of an expression for each kind, one after the other, or "".
func typeErrors(kinds []matchedKind, variables expressions.VariableSet, expression string) string {
	var texts []string
	for _, k := range kinds {
		issues, err := k.environment.Issues(variables, expression)
		if err != nil {
			issues = fmt.Sprintf("type checking error: %v", err)
		}
		if issues != "" {
			texts = append(texts, fmt.Sprintf("%v: %s\n", k.kind, issues))
		}
	}
	return truncateLines(strings.Join(texts, "\n"))
}

// truncateLines truncates a text to at most maxWarning bytes, at the end of a line, and appends
// "...".
func truncateLines(text string) string {
	if len(text) <= maxWarning {
		return text
	}
	text = text[:maxWarning]
	return text[:strings.LastIndexByte(text, '\n')+1] + "..."
}

// typeNumber matches the number at the end of a type name that Kubernetes generates, with the
// characters before and after it: "t2'" in "type 'Deployment2'".
var typeNumber = regexp.MustCompile(`([A-Za-z])[0-9]+([.'),])`)

// equalWarnings reports whether two lists of warnings are equal. It ignores the numbers in type
// names, because some writers generate new ones each time.
func equalWarnings(a, b []admissionregistrationv1.ExpressionWarning) bool {
	if len(a) != len(b) {
		return false
	}
	withoutNumbers := func(text string) string { return typeNumber.ReplaceAllString(text, "$1$2") }
	for i := range a {
		if a[i].FieldRef != b[i].FieldRef ||
			a[i].Warning != b[i].Warning && withoutNumbers(a[i].Warning) != withoutNumbers(b[i].Warning) {
			return false
		}
	}
	return true
}

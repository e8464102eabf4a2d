package policies

import (
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// policy is a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy. It is compiled on first use.
type policy struct {
	name     string
	params   *admissionregistrationv1.ParamKind
	criteria *matcher.CompiledCriteria // of the match constraints
	// ignore admits requests that the policy cannot evaluate.
	ignore bool
	// reinvoke applies the policy once more if the object changes after the policy ran.
	reinvoke bool
	// err, if set, makes every evaluation of the policy fail: the selectors are invalid, or the
	// compiler could not be created.
	err error
	// compile returns the compiled expressions. It compiles them when it is first called.
	compile func() *rules
}

// rules holds the compiled expressions of a policy. validations and annotations are empty for a
// mutating policy, mutations for a validating one.
type rules struct {
	conditions  *matcher.Conditions
	variables   variables
	validations []validation
	annotations []annotation
	mutations   []mutation
}

// program is a compiled expression. If it did not compile, err is the error and Program is nil.
type program struct {
	expression string
	*celenv.Program
	err error
}

// validation is an element of a policy's validations. The embedded program is its expression.
type validation struct {
	program
	message        string
	messageProgram *program // the messageExpression; nil if there is none
	reason         metav1.StatusReason
}

// annotation is an element of a policy's audit annotations.
type annotation struct {
	program
	key string
}

// variables holds the variables of a policy in the order of their declaration.
type variables struct {
	names    []string
	programs map[string]program
}

// newValidatingPolicy returns a policy that compiles its expressions on first use.
func newValidatingPolicy(
	apiPolicy *admissionregistrationv1.ValidatingAdmissionPolicy,
	programs func() (*expressions.Programs, *expressions.Compiler, error),
) *policy {
	out := &policy{
		name:   apiPolicy.Name,
		params: apiPolicy.Spec.ParamKind,
		ignore: apiPolicy.Spec.FailurePolicy != nil && *apiPolicy.Spec.FailurePolicy == admissionregistrationv1.Ignore,
	}
	out.criteria, out.err = compileCriteria(apiPolicy.Spec.MatchConstraints)
	shared, compiler, err := programs()
	if err != nil {
		out.err = err
	}
	out.compile = sync.OnceValue(func() *rules { return compileValidations(&apiPolicy.Spec, shared, compiler) })
	return out
}

// compileCriteria compiles the match constraints of a policy or binding. Missing constraints
// match everything. If a selector is invalid, compileCriteria returns the error and criteria without the
// selectors.
func compileCriteria(constraints *admissionregistrationv1.MatchResources) (*matcher.CompiledCriteria, error) {
	if constraints == nil {
		constraints = &admissionregistrationv1.MatchResources{}
	}
	criteria := matcher.Criteria{
		Rules: constraints.ResourceRules, Exclude: constraints.ExcludeResourceRules, Exact: constraints.MatchPolicy != nil && *constraints.MatchPolicy == admissionregistrationv1.Exact,
		Namespaces: constraints.NamespaceSelector, Objects: constraints.ObjectSelector,
	}
	compiledCriteria, err := matcher.Compile(criteria)
	if err != nil {
		criteria.Namespaces = nil
		criteria.Objects = nil
		compiledCriteria, _ = matcher.Compile(criteria) // rules are always valid
	}
	return compiledCriteria, err
}

// compileValidations compiles the expressions of a validating policy.
func compileValidations(
	spec *admissionregistrationv1.ValidatingAdmissionPolicySpec,
	shared *expressions.Programs,
	compiler *expressions.Compiler,
) *rules {
	available := expressions.VariableSet{Params: spec.ParamKind != nil, Authorizer: true}
	failClosed := spec.FailurePolicy == nil || *spec.FailurePolicy == admissionregistrationv1.Fail
	out := &rules{conditions: matcher.CompileConditions(compiler, available, spec.MatchConditions, failClosed)}
	scope := shared.Scope()
	out.variables = compileVariables(scope, available, spec.Variables)
	for i := range spec.Validations {
		v := &spec.Validations[i]
		r := validation{
			program: compileProgram(scope, available, v.Expression, cel.BoolType),
			message: strings.TrimSpace(v.Message), reason: metav1.StatusReasonInvalid,
		}
		if v.Reason != nil && *v.Reason != "" {
			r.reason = *v.Reason
		}
		if v.MessageExpression != "" {
			m := compileProgram(scope, expressions.VariableSet{Params: available.Params}, v.MessageExpression, cel.StringType)
			r.messageProgram = &m
		}
		out.validations = append(out.validations, r)
	}
	for i := range spec.AuditAnnotations {
		a := &spec.AuditAnnotations[i]
		out.annotations = append(out.annotations, annotation{
			program: compileProgram(scope, available, strings.TrimSpace(a.ValueExpression), cel.StringType, cel.NullType), key: a.Key,
		})
	}
	return out
}

// compileVariables compiles the variables of a policy and declares them in the scope, so that
// expressions compiled later can use them.
func compileVariables(scope *expressions.Scope, available expressions.VariableSet, list []admissionregistrationv1.Variable) variables {
	out := variables{programs: map[string]program{}}
	for i := range list {
		v := &list[i]
		p, err := scope.Declare(available, v.Name, v.Expression)
		out.names = append(out.names, v.Name)
		out.programs[v.Name] = program{expression: v.Expression, Program: p, err: err}
	}
	return out
}

// compileProgram compiles an expression, whose result must have one of the expected types.
func compileProgram(
	scope *expressions.Scope,
	available expressions.VariableSet,
	expression string,
	expected ...*cel.Type,
) program {
	p, err := scope.Compile(available, expression, expected...)
	return program{expression: expression, Program: p, err: err}
}

// binding is a ValidatingAdmissionPolicyBinding or a MutatingAdmissionPolicyBinding.
type binding struct {
	name, policyName string
	reference        *reference
	// criteria, if not nil, limits the requests that the policy matches further. err is the error
	// of compiling them.
	criteria *matcher.CompiledCriteria
	err      error
	// actions holds the actions of a validating binding.
	actions []admissionregistrationv1.ValidationAction
}

func newValidatingBinding(apiBinding *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *binding {
	out := &binding{
		name:       apiBinding.Name,
		policyName: apiBinding.Spec.PolicyName,
		reference:  referenceOf(apiBinding.Spec.ParamRef),
		actions:    apiBinding.Spec.ValidationActions,
	}
	if apiBinding.Spec.MatchResources != nil {
		out.criteria, out.err = compileCriteria(apiBinding.Spec.MatchResources)
	}
	return out
}

package policies

import (
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// policy is a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy. It is compiled on first use.
type policy struct {
	name     string
	params   *admissionv1.ParamKind
	criteria *matcher.CompiledCriteria // of the match constraints
	// ignore admits requests that the policy cannot evaluate.
	ignore bool
	// reinvoke applies the policy once more if the object changes after the policy ran.
	reinvoke bool
	// err is the reason why the policy cannot be enforced at all.
	err error

	compile func() *rules
}

// rules holds the expressions of a validating or mutating policy.
type rules struct {
	conditions  *matcher.Conditions
	variables   variables
	validations []rule
	annotations []annotation
	mutations   []mutation
}

// program is a compiled expression, or its error.
type program struct {
	expression string
	*celenv.Program
	err error
}

// rule is a compiled validation.
type rule struct {
	program
	message    string
	expression *program // expression of the message; nil if there is none
	reason     metav1.StatusReason
}

// annotation is a compiled audit annotation.
type annotation struct {
	program
	key string
}

// variables holds the variables of a policy in the order of their declaration.
type variables struct {
	names    []string
	programs map[string]program
}

// newPolicy returns a policy, which compiles its expressions on first use.
func newPolicy(p *admissionv1.ValidatingAdmissionPolicy, programs func() (*expressions.Programs, *expressions.Compiler, error)) *policy {
	out := &policy{name: p.Name, params: p.Spec.ParamKind, ignore: p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy == admissionv1.Ignore}
	out.criteria, out.err = compileCriteria(p.Spec.MatchConstraints)
	shared, compiler, err := programs()
	if err != nil {
		out.err = err
	}
	out.compile = sync.OnceValue(func() *rules { return compileRules(&p.Spec, shared, compiler) })
	return out
}

// compileCriteria returns the criterion of a policy or binding. If the selectors are invalid, it
// returns the error and a criterion with only the rules.
func compileCriteria(m *admissionv1.MatchResources) (*matcher.CompiledCriteria, error) {
	if m == nil {
		m = &admissionv1.MatchResources{}
	}
	criteria := matcher.Criteria{
		Rules: m.ResourceRules, Exclude: m.ExcludeResourceRules, Exact: m.MatchPolicy != nil && *m.MatchPolicy == admissionv1.Exact,
		Namespaces: m.NamespaceSelector, Objects: m.ObjectSelector,
	}
	c, err := matcher.Compile(criteria)
	if err != nil {
		criteria.Namespaces = nil
		criteria.Objects = nil
		c, _ = matcher.Compile(criteria) // rules are always valid
	}
	return c, err
}

// compileRules compiles the expressions of a validating policy.
func compileRules(s *admissionv1.ValidatingAdmissionPolicySpec, shared *expressions.Programs, compiler *expressions.Compiler) *rules {
	available := expressions.VariableSet{Params: s.ParamKind != nil, Authorizer: true}
	failClosed := s.FailurePolicy == nil || *s.FailurePolicy == admissionv1.Fail
	out := &rules{conditions: matcher.CompileConditions(compiler, available, s.MatchConditions, failClosed)}
	scope := shared.Scope()
	out.variables = compileVariables(scope, available, s.Variables)
	for i := range s.Validations {
		v := &s.Validations[i]
		r := rule{program: compileProgram(scope, available, v.Expression, cel.BoolType), message: strings.TrimSpace(v.Message), reason: metav1.StatusReasonInvalid}
		if v.Reason != nil && *v.Reason != "" {
			r.reason = *v.Reason
		}
		if v.MessageExpression != "" {
			m := compileProgram(scope, expressions.VariableSet{Params: available.Params}, v.MessageExpression, cel.StringType)
			r.expression = &m
		}
		out.validations = append(out.validations, r)
	}
	for i := range s.AuditAnnotations {
		a := &s.AuditAnnotations[i]
		out.annotations = append(out.annotations, annotation{compileProgram(scope, available, strings.TrimSpace(a.ValueExpression), cel.StringType, cel.NullType), a.Key})
	}
	return out
}

// compileVariables declares variables in the scope, so that later expressions can use them.
func compileVariables(scope *expressions.Scope, available expressions.VariableSet, list []admissionv1.Variable) variables {
	out := variables{programs: map[string]program{}}
	for i := range list {
		v := &list[i]
		p, err := scope.Declare(available, v.Name, v.Expression)
		out.names = append(out.names, v.Name)
		out.programs[v.Name] = program{v.Expression, p, err}
	}
	return out
}

// compileProgram compiles an expression of one of the wanted types.
func compileProgram(scope *expressions.Scope, available expressions.VariableSet, expression string, expected ...*cel.Type) program {
	p, err := scope.Compile(available, expression, expected...)
	return program{expression, p, err}
}

// binding is a ValidatingAdmissionPolicyBinding or a MutatingAdmissionPolicyBinding.
type binding struct {
	name, policyName string
	reference        *reference
	// criterion, if not nil, further limits the policy's matches. err is its error.
	criteria *matcher.CompiledCriteria
	err      error
	// actions holds the actions of a validating binding.
	actions []admissionv1.ValidationAction
}

func newBinding(b *admissionv1.ValidatingAdmissionPolicyBinding) *binding {
	out := &binding{name: b.Name, policyName: b.Spec.PolicyName, reference: referenceOf(b.Spec.ParamRef), actions: b.Spec.ValidationActions}
	if b.Spec.MatchResources != nil {
		out.criteria, out.err = compileCriteria(b.Spec.MatchResources)
	}
	return out
}

package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/cel/policyform"
	"binnacle/services/apiserver/internal/json/jsonpatch"
)

const (
	// maxChange is the approximate maximum size in bytes of the configuration or patch that an
	// expression returns.
	maxChange = 3 << 20
	// maxOperations is the maximum number of operations in a JSON patch. Patches of clients have
	// the same limit, because a single operation may move a whole list.
	maxOperations = 10000
)

// mutation is an element of a policy's mutations.
type mutation struct {
	program
	// isPatch reports whether the program returns a JSON patch. Otherwise it returns an apply
	// configuration to merge.
	isPatch bool
}

// newMutatingPolicy returns a policy that compiles its expressions on first use.
func newMutatingPolicy(
	apiPolicy *alphav1.MutatingAdmissionPolicy,
	programs func() (*expressions.Programs, *expressions.Compiler, error),
) *policy {
	out := &policy{
		name:     apiPolicy.Name,
		params:   (*admissionregistrationv1.ParamKind)(apiPolicy.Spec.ParamKind),
		reinvoke: apiPolicy.Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy,
		ignore:   apiPolicy.Spec.FailurePolicy != nil && *apiPolicy.Spec.FailurePolicy == alphav1.Ignore,
	}
	out.criteria, out.err = compileCriteria(policyform.Match(apiPolicy.Spec.MatchConstraints))
	shared, compiler, err := programs()
	if err != nil {
		out.err = err
	}
	out.compile = sync.OnceValue(func() *rules { return compileMutations(&apiPolicy.Spec, shared, compiler, !out.ignore) })
	return out
}

// compileMutations compiles the expressions of a policy. failClosed is passed to
// matcher.CompileConditions.
func compileMutations(
	spec *alphav1.MutatingAdmissionPolicySpec,
	shared *expressions.Programs,
	compiler *expressions.Compiler,
	failClosed bool,
) *rules {
	available := expressions.VariableSet{Params: spec.ParamKind != nil, Authorizer: true}
	out := &rules{conditions: matcher.CompileConditions(compiler, available, policyform.Conditions(spec.MatchConditions), failClosed)}
	scope := shared.Scope()
	out.variables = compileVariables(scope, available, policyform.Variables(spec.Variables))
	available.Patches = true
	for i := range spec.Mutations {
		m := &spec.Mutations[i]
		switch {
		case m.PatchType == alphav1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			out.mutations = append(out.mutations,
				mutation{program: compileProgram(scope, available, m.ApplyConfiguration.Expression, celenv.ObjectType)})
		case m.PatchType == alphav1.PatchTypeJSONPatch && m.JSONPatch != nil:
			out.mutations = append(
				out.mutations,
				mutation{
					program: compileProgram(scope, available, m.JSONPatch.Expression, cel.ListType(celenv.JSONPatchType)),
					isPatch: true,
				},
			)
		}
	}
	return out
}

func newMutatingBinding(b *alphav1.MutatingAdmissionPolicyBinding) *binding {
	out := &binding{name: b.Name, policyName: b.Spec.PolicyName, reference: referenceOf(policyform.ParamRef(b.Spec.ParamRef))}
	if b.Spec.MatchResources != nil {
		out.criteria, out.err = compileCriteria(policyform.Match(b.Spec.MatchResources))
	}
	return out
}

// mutate returns the object after a mutation, or nil if the mutation does not apply. class is the
// error class for metrics.
func (e *policyEvaluation) mutate(config *Config, m *mutation, view *views.View) (obj runtime.Object, class string, err error) {
	budget := newTrackedBudget()
	value, err := budget.eval(e.ctx, &m.program, e.values(true, budget))
	switch {
	case budget.exhausted:
		return nil, errorBudget, err
	case err != nil:
		return nil, errorClassOf(&m.program), err
	}
	change := applyConfiguration
	if m.isPatch {
		change = applyPatch
	}
	if obj, err = change(config, value, view); err != nil {
		class = errorInvalid
	}
	return obj, class, err
}

// applyConfiguration returns the object of the view with an apply configuration merged into it. v
// is the configuration.
func applyConfiguration(config *Config, v ref.Val, view *views.View) (runtime.Object, error) {
	configuration, err := celenv.Configuration(v, maxChange)
	if err != nil {
		return nil, err
	}
	configuration["apiVersion"] = view.Kind.GroupVersion().String()
	configuration["kind"] = view.Kind.Kind
	tree, err := config.Configure(view.Kind, view.Object, configuration)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	obj, err := view.Read(tree)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return obj, nil
}

// applyPatch returns the object of the view after a JSON patch. v is the list of operations. It
// returns nil if there are no operations or a test operation fails.
func applyPatch(_ *Config, v ref.Val, view *views.View) (runtime.Object, error) {
	operations, err := celenv.Operations(v, maxChange)
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	if len(operations) > maxOperations {
		return nil, fmt.Errorf("JSON Patch: %d operations, at most %d are allowed", len(operations), maxOperations)
	}
	patch := make(jsonpatch.Patch, len(operations))
	for i := range operations {
		if patch[i], err = patchOperation(&operations[i]); err != nil {
			return nil, fmt.Errorf("JSON Patch: %w", err)
		}
	}
	doc, err := view.ObjectJSON()
	if err != nil {
		return nil, err
	}
	doc, err = jsonpatch.Apply(doc, patch)
	if errors.Is(err, jsonpatch.ErrTestFailed) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	obj, err := view.DecodeStrict(doc)
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	return obj, nil
}

// patchOperation converts an operation from an expression to the type of package jsonpatch.
func patchOperation(operation *celenv.Operation) (jsonpatch.Operation, error) {
	out := jsonpatch.Operation{}
	set := func(name string, value any) error {
		raw, err := json.Marshal(value)
		out[name] = (*json.RawMessage)(&raw)
		return err
	}
	err := errors.Join(set("op", operation.Op), set("path", operation.Path))
	if operation.From != "" {
		err = errors.Join(err, set("from", operation.From))
	}
	if operation.HasValue {
		err = errors.Join(err, set("value", operation.Value))
	}
	return out, err
}

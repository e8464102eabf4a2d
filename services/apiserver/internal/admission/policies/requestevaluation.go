package policies

import (
	"context"
	"sync"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// requestEvaluation is the part of an evaluation that validating and mutating policies share. It is
// the evaluation of one request by all policies of one type.
type requestEvaluation struct {
	config  *Config
	ctx     context.Context
	request *admission.Request
	views   *views.Views

	// namespace returns the variable namespaceObject; nil until first needed.
	namespace func() any
	// inputs caches the results of cachedInput.
	inputs map[matcher.MatchedKind]requestInput
}

// selects reports whether a policy matches the request. If so, matchedKind is the version in which
// the policy sees the request, and params is the resource of the policy's parameters, or nil.
func (e *requestEvaluation) selects(
	candidate *matcher.Candidate[*boundPolicy],
) (matchedKind matcher.MatchedKind, params *apiset.Resource, ok bool, err error) {
	policy := candidate.Value.policy
	matchedKind, ok, err = candidate.Selects(e.ctx, e.request, e.request.Object, e.config.Namespaces)
	if err == nil && ok {
		err = policy.err
	}
	if err == nil && ok {
		params, err = e.config.Parameters.resourceFor(policy.params)
	}
	return matchedKind, params, ok, err
}

// params returns the parameters of a binding. The policy is evaluated once with each of them.
// params returns none if the binding does not match the request. kind is the resource of the
// parameters; it may be nil.
func (e *requestEvaluation) params(b *binding, kind *apiset.Resource) ([]parameter, error) {
	if b.criteria != nil {
		_, ok, err := b.criteria.Match(e.ctx, e.request, e.config.Family, e.config.Namespaces)
		if err == nil && ok {
			err = b.err
		}
		if err != nil || !ok {
			return nil, err
		}
	}
	return e.config.Parameters.forBinding(e.ctx, kind, b.reference, matcher.Namespace(e.request))
}

// requestInput is the request as expressions see it, without a parameter.
type requestInput struct{ *matcher.ExpressionInput }

// withParam returns the input with a parameter, which may be nil.
func (r requestInput) withParam(param map[string]any) expressions.Input {
	in := r.Input
	in.Params = nil
	if param != nil {
		in.Params = param
	}
	return in
}

// cachedInput is newInput with a cache. Only validating policies may use it, because their request
// does not change during the evaluation.
func (e *requestEvaluation) cachedInput(matchedKind matcher.MatchedKind) (requestInput, error) {
	if in, ok := e.inputs[matchedKind]; ok {
		return in, nil
	}
	in, _, err := e.newInput(matchedKind)
	if err == nil {
		if e.inputs == nil {
			e.inputs = map[matcher.MatchedKind]requestInput{}
		}
		e.inputs[matchedKind] = in
	}
	return in, err
}

// newInput returns the request as expressions see it in the version matchedKind, and the view of
// its objects.
func (e *requestEvaluation) newInput(matchedKind matcher.MatchedKind) (requestInput, *views.View, error) {
	view, err := e.views.ForKind(matchedKind.Kind)
	if err != nil {
		return requestInput{}, nil, err
	}
	in := requestInput{matcher.NewExpressionInput(e.ctx, e.request, view, matchedKind, e.config.Authorizer)}
	if in.NamespaceObject, err = e.namespaceObject(); err != nil {
		return requestInput{}, nil, err
	}
	return in, view, nil
}

// namespaceObject returns a function that returns the variable namespaceObject. The variable is nil
// for cluster-scoped objects.
func (e *requestEvaluation) namespaceObject() (func() any, error) {
	if e.namespace == nil {
		namespace, err := e.config.namespaceOf(e.ctx, e.request)
		if err != nil {
			return nil, err
		}
		e.namespace = sync.OnceValue(namespaceTree(namespace))
	}
	return e.namespace, nil
}

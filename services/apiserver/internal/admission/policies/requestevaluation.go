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

// requestEvaluation is the evaluation of one request by all validating or all mutating policies.
type requestEvaluation struct {
	config  *Config
	ctx     context.Context
	request *admission.Request
	views   *views.Views

	namespaceKnown bool
	namespace      func() any
	// subjects caches the subjects of a request that does not change during the evaluation.
	subjects map[matcher.MatchedKind]subject
}

// selects reports whether a policy matches the request. It returns the resource and kind as which
// the policy sees the request, and the kind of the policy's parameters.
func (e *requestEvaluation) selects(candidate *matcher.Candidate[*boundPolicy]) (as matcher.MatchedKind, params *apiset.Resource, ok bool, err error) {
	p := candidate.Value.policy
	as, ok, err = candidate.Selects(e.ctx, e.request, e.request.Object, e.config.Namespaces)
	if err == nil && ok {
		err = p.err
	}
	if err == nil && ok {
		params, err = e.config.Parameters.resource(p.params)
	}
	return as, params, ok, err
}

// params returns the parameters of a binding. It returns none if the binding does not match the
// request.
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

// subject is the request as expressions see it.
type subject struct{ *matcher.ExpressionInput }

// withParam returns the input with a parameter, which may be nil.
func (s subject) withParam(param map[string]any) expressions.Input {
	in := s.Input
	in.Params = nil
	if param != nil {
		in.Params = param
	}
	return in
}

// cachedSubject returns the cached subject of a request that does not change.
func (e *requestEvaluation) cachedSubject(as matcher.MatchedKind) (subject, error) {
	if s, ok := e.subjects[as]; ok {
		return s, nil
	}
	s, _, err := e.subject(as)
	if err == nil {
		if e.subjects == nil {
			e.subjects = map[matcher.MatchedKind]subject{}
		}
		e.subjects[as] = s
	}
	return s, err
}

// subject returns the request as expressions see it, and the view of its objects.
func (e *requestEvaluation) subject(as matcher.MatchedKind) (subject, *views.View, error) {
	view, err := e.views.ForKind(as.Kind)
	if err != nil {
		return subject{}, nil, err
	}
	s := subject{matcher.NewExpressionInput(e.ctx, e.request, view, as, e.config.Authorizer)}
	if s.NamespaceObject, err = e.namespaceObject(); err != nil {
		return subject{}, nil, err
	}
	return s, view, nil
}

// namespaceObject returns the namespace as expressions see it. The function returns nil for
// cluster-scoped objects.
func (e *requestEvaluation) namespaceObject() (func() any, error) {
	if !e.namespaceKnown {
		n, err := e.config.namespaceOf(e.ctx, e.request)
		if err != nil {
			return nil, err
		}
		e.namespaceKnown, e.namespace = true, sync.OnceValue(namespaceTree(n))
	}
	return e.namespace, nil
}

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
func (a *requestEvaluation) selects(c *matcher.Candidate[*boundPolicy[*policy, *binding]]) (as matcher.MatchedKind, params *apiset.Resource, ok bool, err error) {
	p := c.Value.policy
	as, ok, err = c.Selects(a.ctx, a.request, a.request.Object, a.config.Namespaces)
	if err == nil && ok {
		err = p.err
	}
	if err == nil && ok {
		params, err = a.config.Parameters.resource(p.params)
	}
	return as, params, ok, err
}

// params returns the parameters of a binding. It returns none if the binding does not match the
// request.
func (a *requestEvaluation) params(b *binding, kind *apiset.Resource) ([]parameter, error) {
	if b.criterion != nil {
		_, ok, err := b.criterion.Match(a.ctx, a.request, a.config.Family, a.config.Namespaces)
		if err == nil && ok {
			err = b.err
		}
		if err != nil || !ok {
			return nil, err
		}
	}
	return a.config.Parameters.forBinding(a.ctx, kind, b.reference, matcher.Namespace(a.request))
}

// subject is the request as expressions see it.
type subject struct{ *matcher.Subject }

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
func (a *requestEvaluation) cachedSubject(as matcher.MatchedKind) (subject, error) {
	if s, ok := a.subjects[as]; ok {
		return s, nil
	}
	s, _, err := a.subject(as)
	if err == nil {
		if a.subjects == nil {
			a.subjects = map[matcher.MatchedKind]subject{}
		}
		a.subjects[as] = s
	}
	return s, err
}

// subject returns the request as expressions see it, and the view of its objects.
func (a *requestEvaluation) subject(as matcher.MatchedKind) (subject, *views.View, error) {
	view, err := a.views.In(as.Kind)
	if err != nil {
		return subject{}, nil, err
	}
	s := subject{matcher.InputOf(a.ctx, a.request, view, as, a.config.Authorizer)}
	if s.NamespaceObject, err = a.namespaceObject(); err != nil {
		return subject{}, nil, err
	}
	return s, view, nil
}

// namespaceObject returns the namespace as expressions see it. The function returns nil for
// cluster-scoped objects.
func (a *requestEvaluation) namespaceObject() (func() any, error) {
	if !a.namespaceKnown {
		n, err := a.config.namespaceOf(a.ctx, a.request)
		if err != nil {
			return nil, err
		}
		a.namespaceKnown, a.namespace = true, sync.OnceValue(namespaceTree(n))
	}
	return a.namespace, nil
}

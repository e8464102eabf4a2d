package app

import (
	"context"
	"errors"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission/expressions"
	"binnacle/services/apiserver/internal/admission/policies"
	"binnacle/services/apiserver/internal/objects"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/watchcache"
)

// policies is what both plugins of admission policies have in common.
func (p *parts) policies(sort string) (policies.Config, error) {
	namespaceKind := p.lookup(corev1.SchemeGroupVersion.WithResource("namespaces"))
	o := p.objects(true)
	parameters, err := policies.NewParameters(
		func(gvk schema.GroupVersionKind) *served.Resource { return p.kinds.Current().StoredKind(gvk) },
		func(ctx context.Context) error { return p.acknowledged.Seen(ctx, p.cache) },
	)
	programs := sync.OnceValues(func() (*expressions.Programs, error) {
		c, err := p.compiler()
		if err != nil {
			return nil, err
		}
		return expressions.NewPrograms(c), nil
	})
	return policies.Config{
		Ready: p.cache.Ready, Family: p.family, Namespaces: &namespaces{p}, Authorizer: p.authz.chain,
		Namespace: func(ctx context.Context, name string) (*corev1.Namespace, error) {
			return objects.Get[*corev1.Namespace](ctx, o, &namespaceKind, "", name)
		},
		Parameters: parameters,
		Programs: func() (*expressions.Programs, *expressions.Compiler, error) {
			shared, err := programs()
			if err != nil {
				return nil, nil, err
			}
			c, err := p.compiler()
			return shared, c, err
		},
		Codec: p.codec, Metrics: policies.NewMetrics(p.metrics, sort), Logger: p.log,
	}, err
}

// policySource reads a kind of the group of policies.
func (p *parts) policySource(resource string) policies.Source {
	k := p.lookup(admissionregistrationv1.SchemeGroupVersion.WithResource(resource))
	return policies.Source{Store: k.Store, Decode: func(e *watchcache.Entry) (metav1.Object, error) {
		return k.Coder.DecodeStored(e.Stored(), e.Revision)
	}}
}

// validatingPolicies makes the plugin.
func (p *parts) validatingPolicies(configuration []byte) (any, error) {
	if configuration != nil {
		return nil, errors.New("it takes no configuration")
	}
	c, err := p.policies("validating")
	if err != nil {
		return nil, err
	}
	return policies.NewValidating(c, p.policySource("validatingadmissionpolicies"), p.policySource("validatingadmissionpolicybindings")), nil
}

package build

import (
	"context"
	"errors"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/policies"
	"binnacle/services/apiserver/internal/admission/policyparams"
	"binnacle/services/apiserver/internal/admission/typecheck"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/controllers/statuses"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/registry"
)

// compilerWithCosts returns a function that returns a compiler of CEL expressions. If the gate
// strict is enabled, a call of a function of the Kubernetes CEL libraries has its estimated cost.
// Otherwise each such call has the cost 1.
func (a *admissionBuilder) compilerWithCosts(strict features.Gate) func() (*expressions.Compiler, error) {
	if a.gates.Enabled(strict) {
		return a.compiler
	}
	return sync.OnceValues(func() (*expressions.Compiler, error) {
		compiler, err := a.compiler()
		if err != nil {
			return nil, err
		}
		return compiler.WithStandardCosts(), nil
	})
}

// newPolicyConfig returns the configuration of the plugin for a type of admission policies.
func (a *admissionBuilder) newPolicyConfig(
	policyType policies.PolicyType,
	compiler func() (*expressions.Compiler, error),
) (policies.Config, error) {
	parameters, err := policies.NewParameters(
		func(gvk schema.GroupVersionKind) *apiset.Resource { return a.sets.kinds.Current().StoredKind(gvk) },
		a.caches.waitForWrites,
	)
	if err != nil {
		return policies.Config{}, err
	}
	programs := sync.OnceValues(func() (*expressions.Programs, error) {
		celCompiler, err := compiler()
		if err != nil {
			return nil, err
		}
		return expressions.NewPrograms(celCompiler), nil
	})
	return policies.Config{
		Ready:      a.policiesReadable,
		Family:     a.sets.family,
		Namespaces: a.namespaces,
		Authorizer: a.authz.chain,
		Namespace:  a.namespaces.GetNamespace,
		Parameters: parameters,
		Programs: func() (*expressions.Programs, *expressions.Compiler, error) {
			shared, err := programs()
			if err != nil {
				return nil, nil, err
			}
			celCompiler, err := compiler()
			return shared, celCompiler, err
		},
		Codec:           a.caches.codec,
		StructEncodings: &views.StructEncodings{},
		Metrics:         policies.NewMetrics(a.metrics, policyType),
		Logger:          a.log,
	}, nil
}

// policiesReadable reports whether all policies and bindings are loaded and readable. If one is
// not, it is unknown what it forbids.
func (a *admissionBuilder) policiesReadable() bool {
	if !a.caches.cache.Ready() {
		return false
	}
	for _, resource := range []string{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies",
		"mutatingadmissionpolicybindings",
	} {
		if store := a.caches.cache.Store((schema.GroupResource{
			Group:    admissionregistrationv1.GroupName,
			Resource: resource,
		}).String()); store != nil && !store.HasReadableVersions() {
			return false
		}
	}
	return true
}

// policySource returns the source of the objects of a resource in admissionregistration.k8s.io.
func (a *admissionBuilder) policySource(version, resource string) admission.Source {
	return admission.SourceOf(a.caches.lookup(schema.GroupVersionResource{
		Group:    admissionregistrationv1.GroupName,
		Version:  version,
		Resource: resource,
	}))
}

// newValidatingPolicies creates the plugin for ValidatingAdmissionPolicies.
func (a *admissionBuilder) newValidatingPolicies(configuration []byte) (any, error) {
	if configuration != nil {
		return nil, errors.New("it takes no configuration")
	}
	policyConfig, err := a.newPolicyConfig(policies.ValidatingPolicies, a.compilerWithCosts(features.StrictCostEnforcementForVAP))
	if err != nil {
		return nil, err
	}
	return policies.NewValidating(policyConfig, a.policySource("v1", "validatingadmissionpolicies"),
		a.policySource("v1", "validatingadmissionpolicybindings")), nil
}

// newMutatingPolicies creates the plugin for MutatingAdmissionPolicies. If the feature gate is
// disabled, the plugin does nothing.
func (a *admissionBuilder) newMutatingPolicies(configuration []byte) (any, error) {
	if configuration != nil {
		return nil, errors.New("it takes no configuration")
	}
	if !a.gates.Enabled(features.MutatingAdmissionPolicy) {
		return struct{}{}, nil // implements none of the interfaces of plugins
	}
	policyConfig, err := a.newPolicyConfig(policies.MutatingPolicies, a.compiler)
	if err != nil {
		return nil, err
	}
	policyConfig.Configure = func(gvk schema.GroupVersionKind, obj runtime.Object, configuration map[string]any) (map[string]any, error) {
		var kind *registry.Kind
		if resource := a.sets.kinds.Current().StoredKind(gvk); resource != nil {
			kind = resource.Kind
		}
		return a.sets.fields.Configure(kind, obj, configuration)
	}
	return policies.NewMutating(policyConfig, a.policySource("v1alpha1", "mutatingadmissionpolicies"),
		a.policySource("v1alpha1", "mutatingadmissionpolicybindings")), nil
}

// newPolicyParams creates the plugin that prevents users from reading objects through policies with
// parameters. It cannot be disabled, because the check is part of authorization.
func (a *admissionBuilder) newPolicyParams() admission.Plugin {
	validating := a.caches.lookup(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"))
	mutating := a.caches.lookup(schema.GroupVersionResource{
		Group:    admissionregistrationv1.GroupName,
		Version:  "v1alpha1",
		Resource: "mutatingadmissionpolicies",
	})
	objects := a.caches.objects(true)
	return admission.Plugin{
		Name: policyparams.Name,
		Plugin: &policyparams.Plugin{
			Authorizer: a.authz.chain,
			Resource: func(gvk schema.GroupVersionKind) string {
				if r := a.sets.kinds.Current().StoredKind(gvk); r != nil {
					return r.Resource
				}
				return ""
			},
			ParamKind: func(ctx context.Context, name string, mutates bool) (*admissionregistrationv1.ParamKind, error) {
				if mutates {
					policy, err := lister.Get[*alphav1.MutatingAdmissionPolicy](ctx, objects, &mutating, "", name)
					if apierrors.IsNotFound(err) || err == nil && policy == nil {
						return nil, nil
					}
					if err != nil {
						return nil, err
					}
					return (*admissionregistrationv1.ParamKind)(policy.Spec.ParamKind), nil
				}
				policy, err := lister.Get[*admissionregistrationv1.ValidatingAdmissionPolicy](ctx, objects, &validating, "", name)
				if apierrors.IsNotFound(err) || err == nil && policy == nil {
					return nil, nil
				}
				if err != nil {
					return nil, err
				}
				return policy.Spec.ParamKind, nil
			},
		},
	}
}

// newWebhookConfig returns a function that returns the configuration of the plugin for the webhooks
// of a resource. The argument configuration is the plugin's part of the admission configuration
// file. Both webhook plugins share the metrics and the compiler, which newWebhookConfig creates.
func (a *admissionBuilder) newWebhookConfig() func(resource string, configuration []byte) (webhooks.Config, error) {
	metrics := webhooks.NewMetrics(a.metrics)
	compiler := a.compilerWithCosts(features.StrictCostEnforcementForWebhooks)
	return func(resource string, configuration []byte) (webhooks.Config, error) {
		credentials, err := webhooks.LoadCredentials(configuration)
		if err != nil {
			return webhooks.Config{}, err
		}
		cachedResource := a.caches.lookup(admissionregistrationv1.SchemeGroupVersion.WithResource(resource))
		return webhooks.Config{
			Configurations:  admission.SourceOf(cachedResource),
			Ready:           func() bool { return a.caches.cache.Ready() && cachedResource.Store.HasReadableVersions() },
			Family:          a.sets.family,
			Namespaces:      a.namespaces,
			Authorizer:      a.authz.chain,
			Compiler:        compiler,
			Codec:           a.caches.codec,
			StructEncodings: &views.StructEncodings{},
			Credentials:     credentials,
			Services:        a.network.services,
			Dialers:         a.network.dialers,
			Calls:           a.webhookMetrics,
			Responses:       a.responses,
			Notify: func(ctx context.Context, n webhooks.ReachabilityEvent) {
				statuses.RecordWebhookEvent(ctx, a.sets.client, a.log, n)
			},
			Metrics: metrics,
			Logger:  a.log.With("kind", cachedResource.Resource.Resource),
		}, nil
	}
}

// newMutatingWebhooks creates the plugin for mutating webhooks. It returns err if it is not nil.
func (a *admissionBuilder) newMutatingWebhooks(config webhooks.Config, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	plugin, err := webhooks.NewMutating(config)
	if err != nil {
		return nil, err
	}
	a.lifetime.onClose(plugin.Close)
	return plugin, nil
}

// newValidatingWebhooks creates the plugin for validating webhooks. It returns err if it is not
// nil.
func (a *admissionBuilder) newValidatingWebhooks(config webhooks.Config, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	plugin, err := webhooks.NewValidating(config)
	if err != nil {
		return nil, err
	}
	a.lifetime.onClose(plugin.Close)
	return plugin, nil
}

// newTypeChecks adds a controller that writes type-checking results to the statuses of
// ValidatingAdmissionPolicies. It checks policies again when definitions of custom resources
// change, because the types of the objects may have changed.
func newTypeChecks(
	base *base,
	catalogs *catalogs,
	sets *apiSets,
	informer *crdinformer.Syncer,
	compiler func() (*expressions.Compiler, error),
) {
	policyResource := sets.allKinds.Current().Resource(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"))
	served := typecheck.NewServedSchemas(catalogs.codec.Scheme(), catalogs.served, sets.kinds)
	controller := typecheck.New(typecheck.Config{
		Policies:        policyResource.Store,
		Decode:          lister.EntryDecoder[*admissionregistrationv1.ValidatingAdmissionPolicy](policyResource.Coder),
		Schemas:         served.Schemas,
		WaitForRevision: informer.WaitForRevision,
		Compiler:        compiler,
		Client:          statuses.Policies{Client: sets.client},
		Logger:          base.log,
	})
	informer.OnSwapped(func(update kind.CRDUpdate) { controller.Redefined(served.Set(update)) })
	base.lifetime.whileServing("types of admission policies", controller.Run)
}

package build

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"binnacle/services/apiserver/internal/admission/typecheck"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// newTypeChecks maintains the type-checking results in the statuses of admission policies.
func newTypeChecks(b *base, c *catalogs, sets *apiSets, informer *crdinformer.Server, compiler func() (*expressions.Compiler, error)) {
	k := sets.allKinds.Current().Resource(admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"))
	served := typecheck.NewServed(c.codec.Scheme(), c.served, sets.kinds)
	controller := typecheck.New(typecheck.Config{
		Policies: k.Store,
		Decode: func(e *watchcache.Entry) (*admissionv1.ValidatingAdmissionPolicy, error) {
			obj, err := k.Coder.DecodeStored(e.Stored(), e.Revision)
			if err != nil {
				return nil, err
			}
			policy, ok := obj.(*admissionv1.ValidatingAdmissionPolicy)
			if !ok {
				return nil, fmt.Errorf("%T is not a policy", obj)
			}
			return policy, nil
		},
		Schemas: served.Schemas, Settled: informer.Settled,
		Compiler: compiler, Client: policyStatuses{sets.client}, Logger: b.log,
	})
	informer.OnSwapped(func(update kind.Update) { controller.Redefined(served.Set(update)) })
	b.life.whileServing("types of admission policies", controller.Run)
}

// policyStatuses writes the statuses of policies as the server itself.
type policyStatuses struct{ client *internalclient.Client }

// ApplyStatus implements typecheck.Client.
func (s policyStatuses) ApplyStatus(ctx context.Context, name string, wanted *admissionapply.ValidatingAdmissionPolicyApplyConfiguration) error {
	at := internalclient.Collection(admissionv1.GroupName, "v1", "validatingadmissionpolicies", "").Named(name).Subresource("status")
	return s.client.As(typecheck.Manager).Apply(ctx, at, wanted)
}

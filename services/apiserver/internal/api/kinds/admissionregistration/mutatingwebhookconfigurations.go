package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// mutatingWebhookConfigurations declares the cluster-scoped kind MutatingWebhookConfiguration.
func mutatingWebhookConfigurations(compile compiler) *registry.Kind {
	return declare.Kind[admissionregistrationv1.MutatingWebhookConfiguration, admissionregistrationv1.MutatingWebhookConfigurationList](complete(&registry.Kind{
		Names: registry.Names{Version: version, Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"},
		Parts: declare.ExactSpecAccessors(func(m *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
			return &m.Webhooks
		}),
		Default: declare.Adapt(defaultMutatingWebhooks),
		Presentation: registry.Presentation{
			Columns: webhookColumns(func(c *admissionregistrationv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) }),
		},
	}, func(fld validate.Field, c, old *admissionregistrationv1.MutatingWebhookConfiguration) {
		hooks, may := mutatingHooks(c), tolerated{}
		if old != nil {
			may = toleratedViolations(hooks, mutatingHooks(old))
		}
		validateWebhooks(fld, hooks, may, compile)
	}))
}

package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validatingWebhookConfigurations declares the cluster-scoped kind ValidatingWebhookConfiguration.
func validatingWebhookConfigurations(compile compiler) *registry.Kind {
	return declare.Kind[admissionregistrationv1.ValidatingWebhookConfiguration, admissionregistrationv1.ValidatingWebhookConfigurationList](complete(&registry.Kind{
		Names: registry.Names{Version: version, Resource: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"},
		Parts: declare.ExactSpecAccessors(func(v *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
			return &v.Webhooks
		}),
		Default: declare.Adapt(defaultValidatingWebhooks),
		Presentation: registry.Presentation{
			Columns: webhookColumns(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) }),
		},
	}, func(fld validate.Field, c, old *admissionregistrationv1.ValidatingWebhookConfiguration) {
		hooks, may := validatingHooks(c), tolerated{}
		if old != nil {
			may = toleratedViolations(hooks, validatingHooks(old))
		}
		validateWebhooks(fld, hooks, may, compile)
	}))
}

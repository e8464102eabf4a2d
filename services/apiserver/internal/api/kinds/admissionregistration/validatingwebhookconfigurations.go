package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validatingWebhookConfigurations declares the cluster-scoped kind ValidatingWebhookConfiguration.
func validatingWebhookConfigurations(compile compiler) *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:                      group,
			Version:                    version,
			Resource:                   "validatingwebhookconfigurations",
			Singular:                   "validatingwebhookconfiguration",
			Kind:                       "ValidatingWebhookConfiguration",
			Categories:                 categories(),
			AllowUnqualifiedFinalizers: true,
		},
		New:     declare.New[admissionv1.ValidatingWebhookConfiguration],
		NewList: declare.New[admissionv1.ValidatingWebhookConfigurationList],
		Parts: declare.ExactSpecAccessors(func(v *admissionv1.ValidatingWebhookConfiguration) *[]admissionv1.ValidatingWebhook {
			return &v.Webhooks
		}),
		Stored:  registry.StorageForm{Prefix: "validatingwebhookconfigurations"},
		Default: declare.Adapt(defaultValidatingWebhooks),
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, c *admissionv1.ValidatingWebhookConfiguration) {
				validateWebhooks(fld, validatingHooks(c), tolerated{}, compile)
			}),
		},
		Update: registry.Update{
			Order:                  updateOrder(),
			Generation:             true,
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *admissionv1.ValidatingWebhookConfiguration) {
				hooks := validatingHooks(c)
				validateWebhooks(fld, hooks, toleratedViolations(hooks, validatingHooks(old)), compile)
			}),
		},
		Presentation: registry.Presentation{
			Columns: webhookColumns(func(c *admissionv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) }),
		},
	}
}

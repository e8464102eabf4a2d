package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// mutatingWebhookConfigurations declares the cluster-scoped kind MutatingWebhookConfiguration.
func mutatingWebhookConfigurations(compile compiler) *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:                      group,
			Version:                    version,
			Resource:                   "mutatingwebhookconfigurations",
			Singular:                   "mutatingwebhookconfiguration",
			Kind:                       "MutatingWebhookConfiguration",
			Categories:                 categories(),
			AllowUnqualifiedFinalizers: true,
		},
		New:     declare.New[admissionv1.MutatingWebhookConfiguration],
		NewList: declare.New[admissionv1.MutatingWebhookConfigurationList],
		Parts: declare.ExactSpecAccessors(func(m *admissionv1.MutatingWebhookConfiguration) *[]admissionv1.MutatingWebhook {
			return &m.Webhooks
		}),
		Stored:  registry.StorageForm{Prefix: "mutatingwebhookconfigurations"},
		Default: declare.Adapt(defaultMutatingWebhooks),
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, c *admissionv1.MutatingWebhookConfiguration) {
				validateWebhooks(fld, mutatingHooks(c), tolerated{}, compile)
			}),
		},
		Update: registry.Update{
			Order:                  updateOrder(),
			Generation:             true,
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *admissionv1.MutatingWebhookConfiguration) {
				hooks := mutatingHooks(c)
				validateWebhooks(fld, hooks, toleratedViolations(hooks, mutatingHooks(old)), compile)
			}),
		},
		Presentation: registry.Presentation{
			Columns: webhookColumns(func(c *admissionv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) }),
		},
	}
}

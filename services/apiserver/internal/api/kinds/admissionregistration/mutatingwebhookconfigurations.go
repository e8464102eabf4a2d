package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

func mutatingWebhookConfigurations(compile compiler) *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "mutatingwebhookconfigurations", Singular: "mutatingwebhookconfiguration", Kind: "MutatingWebhookConfiguration",
			Categories:   categories(),
			AnyFinalizer: true,
		},
		New:     declare.New[admissionv1.MutatingWebhookConfiguration],
		NewList: declare.New[admissionv1.MutatingWebhookConfigurationList],
		Parts:   declare.Spec(func(m *admissionv1.MutatingWebhookConfiguration) *[]admissionv1.MutatingWebhook { return &m.Webhooks }),
		Stored:  registry.StorageForm{Prefix: "mutatingwebhookconfigurations"},
		Default: declare.Do(defaultMutatingWebhooks),
		Create: registry.Create{Validate: declare.Rules(func(at validate.At, c *admissionv1.MutatingWebhookConfiguration) {
			hookRules(at, mutatingHooks(c), tolerated{}, compile)
		})},
		Update: registry.Update{Order: registry.Order{registry.Meta, registry.Rules}, Generation: true, NeedsVersion: true, Validate: declare.Changes(func(at validate.At, c, old *admissionv1.MutatingWebhookConfiguration) {
			hooks := mutatingHooks(c)
			hookRules(at, hooks, tolerates(hooks, mutatingHooks(old)), compile)
		})},
		Presentation: registry.Presentation{Columns: webhookColumns(func(c *admissionv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) })},
	}
}

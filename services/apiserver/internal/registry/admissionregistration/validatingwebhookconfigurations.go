package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

func validatingWebhookConfigurations() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "validatingwebhookconfigurations", Singular: "validatingwebhookconfiguration", Kind: "ValidatingWebhookConfiguration",
		Categories:         categories(),
		New:                declare.New[admissionv1.ValidatingWebhookConfiguration],
		NewList:            declare.New[admissionv1.ValidatingWebhookConfigurationList],
		Stored:             registry.Stored{Prefix: "validatingwebhookconfigurations"},
		Default:            declare.Do(defaultValidatingWebhooks),
		AnyFinalizer:       true,
		Generation:         true,
		UpdateNeedsVersion: true,
		Columns:            webhookColumns(func(c *admissionv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) }),
	}
}

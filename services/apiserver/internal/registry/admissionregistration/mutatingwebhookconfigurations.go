package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

func mutatingWebhookConfigurations() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "mutatingwebhookconfigurations", Singular: "mutatingwebhookconfiguration", Kind: "MutatingWebhookConfiguration",
		Categories:         categories(),
		New:                declare.New[admissionv1.MutatingWebhookConfiguration],
		NewList:            declare.New[admissionv1.MutatingWebhookConfigurationList],
		Stored:             registry.Stored{Prefix: "mutatingwebhookconfigurations"},
		Default:            declare.Do(defaultMutatingWebhooks),
		AnyFinalizer:       true,
		Generation:         true,
		UpdateNeedsVersion: true,
		Columns:            webhookColumns(func(c *admissionv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) }),
	}
}

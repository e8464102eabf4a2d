package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	// webhookTimeout is the default timeout in seconds.
	webhookTimeout = 10
	// webhookPort is the default port of a webhook's service.
	webhookPort = 443
)

func defaultMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		mutatingWebhook := &c.Webhooks[i]
		declare.SetDefaultPtr(&mutatingWebhook.FailurePolicy, admissionregistrationv1.Fail)
		declare.SetDefaultPtr(&mutatingWebhook.MatchPolicy, admissionregistrationv1.Equivalent)
		declare.SetDefaultPtr(&mutatingWebhook.NamespaceSelector, metav1.LabelSelector{})
		declare.SetDefaultPtr(&mutatingWebhook.ObjectSelector, metav1.LabelSelector{})
		declare.SetDefaultPtr(&mutatingWebhook.TimeoutSeconds, webhookTimeout)
		declare.SetDefaultPtr(&mutatingWebhook.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		defaultClient(&mutatingWebhook.ClientConfig)
		defaultRules(mutatingWebhook.Rules)
	}
}

func defaultValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		validatingWebhook := &c.Webhooks[i]
		declare.SetDefaultPtr(&validatingWebhook.FailurePolicy, admissionregistrationv1.Fail)
		declare.SetDefaultPtr(&validatingWebhook.MatchPolicy, admissionregistrationv1.Equivalent)
		declare.SetDefaultPtr(&validatingWebhook.NamespaceSelector, metav1.LabelSelector{})
		declare.SetDefaultPtr(&validatingWebhook.ObjectSelector, metav1.LabelSelector{})
		declare.SetDefaultPtr(&validatingWebhook.TimeoutSeconds, webhookTimeout)
		defaultClient(&validatingWebhook.ClientConfig)
		defaultRules(validatingWebhook.Rules)
	}
}

func defaultClient(c *admissionregistrationv1.WebhookClientConfig) {
	if c.Service != nil {
		declare.SetDefaultPtr(&c.Service.Port, webhookPort)
	}
}

func defaultRules(rules []admissionregistrationv1.RuleWithOperations) {
	for i := range rules {
		declare.SetDefaultPtr(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

func defaultPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	declare.SetDefaultPtr(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

func defaultMutatingPolicy(p *alphav1.MutatingAdmissionPolicy) {
	declare.SetDefaultPtr(&p.Spec.FailurePolicy, alphav1.Fail)
	defaultAlphaMatch(p.Spec.MatchConstraints)
}

func defaultMutatingBinding(b *alphav1.MutatingAdmissionPolicyBinding) {
	defaultAlphaMatch(b.Spec.MatchResources)
	if ref := b.Spec.ParamRef; ref != nil {
		declare.SetDefaultPtr(&ref.ParameterNotFoundAction, alphav1.DenyAction)
	}
}

// defaultAlphaMatch is defaultMatch for the alpha version.
func defaultAlphaMatch(constraints *alphav1.MatchResources) {
	if constraints == nil {
		return
	}
	declare.SetDefaultPtr(&constraints.MatchPolicy, alphav1.Equivalent)
	declare.SetDefaultPtr(&constraints.NamespaceSelector, metav1.LabelSelector{})
	declare.SetDefaultPtr(&constraints.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]alphav1.NamedRuleWithOperations{constraints.ResourceRules, constraints.ExcludeResourceRules} {
		for i := range rules {
			declare.SetDefaultPtr(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func defaultPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

// defaultMatch sets the defaults of match resources, which may be nil.
func defaultMatch(constraints *admissionregistrationv1.MatchResources) {
	if constraints == nil {
		return
	}
	declare.SetDefaultPtr(&constraints.MatchPolicy, admissionregistrationv1.Equivalent)
	declare.SetDefaultPtr(&constraints.NamespaceSelector, metav1.LabelSelector{})
	declare.SetDefaultPtr(&constraints.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{constraints.ResourceRules, constraints.ExcludeResourceRules} {
		for i := range rules {
			declare.SetDefaultPtr(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
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

func defaultMutatingWebhooks(c *admissionv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		h := &c.Webhooks[i]
		declare.SetDefaultPtr(&h.FailurePolicy, admissionv1.Fail)
		declare.SetDefaultPtr(&h.MatchPolicy, admissionv1.Equivalent)
		declare.SetDefaultPtr(&h.NamespaceSelector, metav1.LabelSelector{})
		declare.SetDefaultPtr(&h.ObjectSelector, metav1.LabelSelector{})
		declare.SetDefaultPtr(&h.TimeoutSeconds, webhookTimeout)
		declare.SetDefaultPtr(&h.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
		defaultClient(&h.ClientConfig)
		defaultRules(h.Rules)
	}
}

func defaultValidatingWebhooks(c *admissionv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		h := &c.Webhooks[i]
		declare.SetDefaultPtr(&h.FailurePolicy, admissionv1.Fail)
		declare.SetDefaultPtr(&h.MatchPolicy, admissionv1.Equivalent)
		declare.SetDefaultPtr(&h.NamespaceSelector, metav1.LabelSelector{})
		declare.SetDefaultPtr(&h.ObjectSelector, metav1.LabelSelector{})
		declare.SetDefaultPtr(&h.TimeoutSeconds, webhookTimeout)
		defaultClient(&h.ClientConfig)
		defaultRules(h.Rules)
	}
}

func defaultClient(c *admissionv1.WebhookClientConfig) {
	if c.Service != nil {
		declare.SetDefaultPtr(&c.Service.Port, webhookPort)
	}
}

func defaultRules(rules []admissionv1.RuleWithOperations) {
	for i := range rules {
		declare.SetDefaultPtr(&rules[i].Scope, admissionv1.AllScopes)
	}
}

func defaultPolicy(p *admissionv1.ValidatingAdmissionPolicy) {
	declare.SetDefaultPtr(&p.Spec.FailurePolicy, admissionv1.Fail)
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
func defaultAlphaMatch(m *alphav1.MatchResources) {
	if m == nil {
		return
	}
	declare.SetDefaultPtr(&m.MatchPolicy, alphav1.Equivalent)
	declare.SetDefaultPtr(&m.NamespaceSelector, metav1.LabelSelector{})
	declare.SetDefaultPtr(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]alphav1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			declare.SetDefaultPtr(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}

func defaultPolicyBinding(b *admissionv1.ValidatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

// defaultMatch sets the defaults of match resources, which may be nil.
func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	declare.SetDefaultPtr(&m.MatchPolicy, admissionv1.Equivalent)
	declare.SetDefaultPtr(&m.NamespaceSelector, metav1.LabelSelector{})
	declare.SetDefaultPtr(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			declare.SetDefaultPtr(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}

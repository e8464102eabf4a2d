package admissionregistration

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	content "k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// hook is a webhook of either configuration kind.
type hook struct {
	admissionv1.ValidatingWebhook
	reinvocation *admissionv1.ReinvocationPolicyType
}

func mutatingHooks(c *admissionv1.MutatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks[i] = hook{reinvocation: w.ReinvocationPolicy, ValidatingWebhook: admissionv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		}}
	}
	return hooks
}

func validatingHooks(c *admissionv1.ValidatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		hooks[i].ValidatingWebhook = c.Webhooks[i]
	}
	return hooks
}

// tolerated holds the mistakes that webhooks may keep because the live ones have them: older
// servers did not reject them.
type tolerated struct {
	sideEffects, unknownVersions, sameNames, labelValues bool
	// conditions reports that the match conditions are unchanged.
	conditions bool
}

func tolerates(hooks, old []hook) tolerated {
	t := tolerated{conditions: len(hooks) == len(old)}
	names := validate.Set[string]{}
	for i := range old {
		h := &old[i]
		t.conditions = t.conditions && validate.Same(h.MatchConditions, hooks[i].MatchConditions)
		t.sideEffects = t.sideEffects || h.SideEffects == nil || !noSideEffects(*h.SideEffects)
		t.unknownVersions = t.unknownVersions || len(h.AdmissionReviewVersions) > 0 && !supportedVersion(h.AdmissionReviewVersions)
		t.sameNames = !names.Add(h.Name) || t.sameNames
		t.labelValues = t.labelValues || validate.HasInvalidValue(h.NamespaceSelector) || validate.HasInvalidValue(h.ObjectSelector)
	}
	return t
}

func hookRules(at validate.At, hooks []hook, may tolerated, compile compiler) {
	compile = compile.forObject()
	names := validate.Set[string]{}
	validate.Each(at, "webhooks", hooks, func(at validate.At, h *hook) {
		webhookRules(at, h, may, compile)
		versionRules(at, h.AdmissionReviewVersions, may.unknownVersions)
		if !may.sameNames && h.Name != "" {
			validate.Unique(at, "name", h.Name, names)
		}
	})
}

func webhookRules(at validate.At, h *hook, may tolerated, compile compiler) {
	const longest = 30
	at.Add(content.IsFullyQualifiedName(at.Child("name").Path(), h.Name)...)
	validate.Each(at, "rules", h.Rules, operationRules)
	policyAndMatch(at, h.FailurePolicy, h.MatchPolicy)
	sideEffectRules(at, h.SideEffects, may.sideEffects)
	if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > longest) {
		at.Invalid("timeoutSeconds", *t, "the timeout value must be between 1 and 30 seconds")
	}
	at.Selector("namespaceSelector", h.NamespaceSelector, may.labelValues)
	at.Selector("objectSelector", h.ObjectSelector, may.labelValues)
	validate.OptionalOneOf(at, "reinvocationPolicy", h.reinvocation, admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
	clientRules(at, &h.ClientConfig)
	if !may.conditions {
		conditionRules(at, h.MatchConditions, expressions.VariableSet{Authorizer: true}, compile)
	}
}

func clientRules(at validate.At, c *admissionv1.WebhookClientConfig) {
	client := at.Child("clientConfig")
	switch s := c.Service; {
	case (c.URL == nil) == (s == nil):
		at.Required("clientConfig", "exactly one of url or service is required")
	case c.URL != nil:
		client.WebhookURL("url", *c.URL)
	default:
		// Kubernetes passes the name of the service as its namespace here.
		client.Child("service").WebhookService(s.Name, s.Namespace, s.Path, declare.OrZero(s.Port))
	}
}

func noSideEffects(s admissionv1.SideEffectClass) bool {
	return s == admissionv1.SideEffectClassNone || s == admissionv1.SideEffectClassNoneOnDryRun
}

func sideEffectRules(at validate.At, s *admissionv1.SideEffectClass, any bool) {
	classes := []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun}
	if any {
		classes = append(classes, admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown)
	}
	if s == nil {
		names := make([]string, len(classes))
		for i, c := range classes {
			names[i] = string(c)
		}
		at.Required("sideEffects", "must specify one of "+strings.Join(names, ", "))
	}
	validate.OptionalOneOf(at, "sideEffects", s, classes...)
}

// reviewVersions are the review versions that the server supports for webhooks.
const reviewVersions = "v1, v1beta1"

func supportedVersion(versions []string) bool {
	for _, v := range versions {
		if v == "v1" || v == "v1beta1" {
			return true
		}
	}
	return false
}

func versionRules(at validate.At, versions []string, any bool) {
	if len(versions) == 0 {
		at.Required("admissionReviewVersions", "must specify one of "+reviewVersions)
		return
	}
	seen := validate.Set[string]{}
	for i, v := range versions {
		entry := at.Index("admissionReviewVersions", i)
		if !seen.Add(v) {
			entry.Invalid("", v, "duplicate version")
			continue
		}
		entry.Text("", v, validate.DNS1035Label)
	}
	if !any && !supportedVersion(versions) {
		at.Invalid("admissionReviewVersions", versions, "must include at least one of "+reviewVersions)
	}
}

package admissionregistration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	content "k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// hook is a webhook of either configuration kind.
type hook struct {
	admissionregistrationv1.ValidatingWebhook
	reinvocation *admissionregistrationv1.ReinvocationPolicyType
}

func mutatingHooks(c *admissionregistrationv1.MutatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		mutatingWebhook := &c.Webhooks[i]
		hooks[i] = hook{reinvocation: mutatingWebhook.ReinvocationPolicy, ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
			Name: mutatingWebhook.Name, ClientConfig: mutatingWebhook.ClientConfig, Rules: mutatingWebhook.Rules, FailurePolicy: mutatingWebhook.FailurePolicy, MatchPolicy: mutatingWebhook.MatchPolicy,
			NamespaceSelector: mutatingWebhook.NamespaceSelector, ObjectSelector: mutatingWebhook.ObjectSelector, SideEffects: mutatingWebhook.SideEffects,
			TimeoutSeconds: mutatingWebhook.TimeoutSeconds, AdmissionReviewVersions: mutatingWebhook.AdmissionReviewVersions, MatchConditions: mutatingWebhook.MatchConditions,
		}}
	}
	return hooks
}

func validatingHooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) []hook {
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

// toleratedViolations returns the violations that an update may keep. old holds the stored
// webhooks.
func toleratedViolations(hooks, old []hook) tolerated {
	t := tolerated{conditions: len(hooks) == len(old)}
	names := validate.Set[string]{}
	for i := range old {
		h := &old[i]
		t.conditions = t.conditions && validate.SemanticEqual(h.MatchConditions, hooks[i].MatchConditions)
		t.sideEffects = t.sideEffects || h.SideEffects == nil || !hasNoSideEffects(*h.SideEffects)
		t.unknownVersions = t.unknownVersions || len(h.AdmissionReviewVersions) > 0 && !isSupportedVersion(h.AdmissionReviewVersions)
		t.sameNames = !names.Add(h.Name) || t.sameNames
		t.labelValues = t.labelValues || validate.HasInvalidLabelValue(h.NamespaceSelector) ||
			validate.HasInvalidLabelValue(h.ObjectSelector)
	}
	return t
}

// validateWebhooks validates the webhooks of a configuration, except for the tolerated violations.
func validateWebhooks(fld validate.Field, hooks []hook, allowed tolerated, compile compiler) {
	compile = compile.forObject()
	names := validate.Set[string]{}
	validate.Each(fld, "webhooks", hooks, func(fld validate.Field, h *hook) {
		validateWebhook(fld, h, allowed, compile)
		validateReviewVersions(fld, h.AdmissionReviewVersions, allowed.unknownVersions)
		if !allowed.sameNames && h.Name != "" {
			validate.Unique(fld, "name", h.Name, names)
		}
	})
}

// validateWebhook validates one webhook. The caller validates what depends on the other ones.
func validateWebhook(fld validate.Field, webhook *hook, allowed tolerated, compile compiler) {
	const maxTimeout = 30 // seconds
	fld.Add(content.IsFullyQualifiedName(fld.Child("name").FieldPath(), webhook.Name)...)
	validate.Each(fld, "rules", webhook.Rules, validateOperations)
	validateFailureAndMatchPolicy(fld, webhook.FailurePolicy, webhook.MatchPolicy)
	validateSideEffects(fld, webhook.SideEffects, allowed.sideEffects)
	if t := webhook.TimeoutSeconds; t != nil && (*t < 1 || *t > maxTimeout) {
		fld.Invalid("timeoutSeconds", *t, "the timeout value must be between 1 and 30 seconds")
	}
	fld.CheckSelector("namespaceSelector", webhook.NamespaceSelector, allowed.labelValues)
	fld.CheckSelector("objectSelector", webhook.ObjectSelector, allowed.labelValues)
	validate.OptionalOneOf(fld, "reinvocationPolicy", webhook.reinvocation, admissionregistrationv1.IfNeededReinvocationPolicy,
		admissionregistrationv1.NeverReinvocationPolicy)
	validateClientConfig(fld, &webhook.ClientConfig)
	if !allowed.conditions {
		validateMatchConditions(fld, webhook.MatchConditions, expressions.VariableSet{Authorizer: true}, compile)
	}
}

// validateClientConfig requires either a URL or a service.
func validateClientConfig(fld validate.Field, clientConfig *admissionregistrationv1.WebhookClientConfig) {
	client := fld.Child("clientConfig")
	switch serviceReference := clientConfig.Service; {
	case (clientConfig.URL == nil) == (serviceReference == nil):
		fld.Required("clientConfig", "exactly one of url or service is required")
	case clientConfig.URL != nil:
		client.CheckWebhookURL("url", *clientConfig.URL)
	default:
		// Kubernetes passes the name of the service as its namespace here.
		client.Child("service").CheckWebhookService(serviceReference.Name, serviceReference.Namespace, serviceReference.Path, declare.Deref(serviceReference.Port))
	}
}

// hasNoSideEffects reports whether a webhook can be called for a dry run.
func hasNoSideEffects(s admissionregistrationv1.SideEffectClass) bool {
	return s == admissionregistrationv1.SideEffectClassNone || s == admissionregistrationv1.SideEffectClassNoneOnDryRun
}

// validateSideEffects requires a class without side effects, or any class if allowsAny is set.
func validateSideEffects(fld validate.Field, sideEffectClass *admissionregistrationv1.SideEffectClass, allowsAny bool) {
	classes := []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun}
	if allowsAny {
		classes = append(classes, admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
	}
	if sideEffectClass == nil {
		names := make([]string, len(classes))
		for i, c := range classes {
			names[i] = string(c)
		}
		fld.Required("sideEffects", "must specify one of "+strings.Join(names, ", "))
	}
	validate.OptionalOneOf(fld, "sideEffects", sideEffectClass, classes...)
}

// reviewVersions are the review versions that the server supports for webhooks.
const reviewVersions = "v1, v1beta1"

// isSupportedVersion reports whether the server supports any of the review versions.
func isSupportedVersion(versions []string) bool {
	return slices.Contains(versions, "v1") || slices.Contains(versions, "v1beta1")
}

// validateReviewVersions requires distinct versions. At least one must be supported, unless
// allowsUnknown is set.
func validateReviewVersions(fld validate.Field, versions []string, allowsUnknown bool) {
	if len(versions) == 0 {
		fld.Required("admissionReviewVersions", "must specify one of "+reviewVersions)
		return
	}
	seen := validate.Set[string]{}
	for i, v := range versions {
		entry := fld.Index("admissionReviewVersions", i)
		if !seen.Add(v) {
			entry.Invalid("", v, "duplicate version")
			continue
		}
		entry.CheckText("", v, validate.DNS1035Label)
	}
	if !allowsUnknown && !isSupportedVersion(versions) {
		fld.Invalid("admissionReviewVersions", versions, "must include at least one of "+reviewVersions)
	}
}

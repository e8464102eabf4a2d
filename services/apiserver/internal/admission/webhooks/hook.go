package webhooks

import (
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// hook is a compiled webhook.
type hook struct {
	configuration, name string
	// ordinal is the position among all hooks of the plugin, for audit annotations.
	ordinal int
	// ignore reports whether failurePolicy is Ignore.
	ignore bool
	// reinvoke reports whether the hook is called again if the object changes after its call.
	reinvoke bool
	timeout  time.Duration
	// dryRun reports whether the hook may be called for dry runs.
	dryRun bool
	// version is the version of AdmissionReview to send, reviewV1 or reviewV1beta1.
	version    string
	criteria   *matcher.CompiledCriteria
	conditions *matcher.Conditions
	caller     *caller
	// err, if set, is the error with which every call fails, because the webhook did not compile.
	err error
}

// defaultTimeout applies to configurations that were stored without a timeout.
const defaultTimeout = 10 * time.Second

// webhook is an element of a webhook configuration of either kind. A mutating webhook has the
// fields of a validating one, and a reinvocation policy.
type webhook struct {
	admissionv1.ValidatingWebhook
	reinvoke bool // reinvocationPolicy is IfNeeded
}

// validatingHooks returns the webhooks of a configuration.
func validatingHooks(c *admissionv1.ValidatingWebhookConfiguration) []webhook {
	out := make([]webhook, len(c.Webhooks))
	for i := range c.Webhooks {
		out[i].ValidatingWebhook = c.Webhooks[i]
	}
	return out
}

// mutatingHooks returns the webhooks of a configuration.
func mutatingHooks(c *admissionv1.MutatingWebhookConfiguration) []webhook {
	out := make([]webhook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		out[i] = webhook{ValidatingWebhook: admissionv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		}, reinvoke: w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionv1.IfNeededReinvocationPolicy}
	}
	return out
}

// compileHook compiles a webhook of a configuration. If that fails, the hook matches by its rules
// only, and its calls fail, so that the failurePolicy decides on these requests.
func compileHook(compiler func() (*expressions.Compiler, error), configuration metav1.Object, w *webhook) *hook {
	h := &hook{
		configuration: configuration.GetName(), name: w.Name, reinvoke: w.reinvoke, timeout: defaultTimeout,
		ignore: w.FailurePolicy != nil && *w.FailurePolicy == admissionv1.Ignore,
	}
	if w.TimeoutSeconds != nil {
		h.timeout = time.Duration(*w.TimeoutSeconds) * time.Second
	}
	if s := w.SideEffects; s != nil {
		h.dryRun = *s == admissionv1.SideEffectClassNone || *s == admissionv1.SideEffectClassNoneOnDryRun
	}
	for _, v := range w.AdmissionReviewVersions {
		if v == reviewV1 || v == reviewV1beta1 {
			h.version = v
			break
		}
	}
	if h.version == "" {
		h.err = fmt.Errorf("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
	}
	criteria := matcher.Criteria{
		Rules: matcher.Unnamed(w.Rules), Exact: w.MatchPolicy != nil && *w.MatchPolicy == admissionv1.Exact,
		Namespaces: w.NamespaceSelector, Objects: w.ObjectSelector,
	}
	var err error
	if h.criteria, err = matcher.Compile(criteria); err != nil {
		h.err = err
		criteria.Namespaces = nil
		criteria.Objects = nil
		h.criteria, _ = matcher.Compile(criteria) // rules always compile
	}
	if len(w.MatchConditions) == 0 {
		return h
	}
	c, err := compiler()
	if err != nil {
		h.err = err
		return h
	}
	h.conditions = matcher.CompileConditions(c, expressions.VariableSet{Authorizer: true}, w.MatchConditions, !h.ignore)
	return h
}

package webhooks

import (
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
	// dryRun reports whether the hook may be called for dry runs: it has no side effects then.
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
	admissionregistrationv1.ValidatingWebhook
	reinvoke bool // reinvocationPolicy is IfNeeded
}

// validatingWebhooks returns the webhooks of a configuration.
func validatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) []webhook {
	out := make([]webhook, len(c.Webhooks))
	for i := range c.Webhooks {
		out[i].ValidatingWebhook = c.Webhooks[i]
	}
	return out
}

// mutatingWebhooks returns the webhooks of a configuration.
func mutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) []webhook {
	out := make([]webhook, len(c.Webhooks))
	for i := range c.Webhooks {
		mutating := &c.Webhooks[i]
		out[i] = webhook{
			ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
				Name:                    mutating.Name,
				ClientConfig:            mutating.ClientConfig,
				Rules:                   mutating.Rules,
				FailurePolicy:           mutating.FailurePolicy,
				MatchPolicy:             mutating.MatchPolicy,
				NamespaceSelector:       mutating.NamespaceSelector,
				ObjectSelector:          mutating.ObjectSelector,
				SideEffects:             mutating.SideEffects,
				TimeoutSeconds:          mutating.TimeoutSeconds,
				AdmissionReviewVersions: mutating.AdmissionReviewVersions,
				MatchConditions:         mutating.MatchConditions,
			},
			reinvoke: mutating.ReinvocationPolicy != nil && *mutating.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy,
		}
	}
	return out
}

// compileHook compiles a webhook of a configuration. If that fails, the hook matches by its rules
// only, and its calls fail, so that the failurePolicy decides on these requests.
func compileHook(compiler func() (*expressions.Compiler, error), configuration metav1.Object, source *webhook) *hook {
	out := &hook{
		configuration: configuration.GetName(), name: source.Name, reinvoke: source.reinvoke, timeout: defaultTimeout,
		ignore: source.FailurePolicy != nil && *source.FailurePolicy == admissionregistrationv1.Ignore,
	}
	if source.TimeoutSeconds != nil {
		out.timeout = time.Duration(*source.TimeoutSeconds) * time.Second
	}
	if s := source.SideEffects; s != nil {
		out.dryRun = *s == admissionregistrationv1.SideEffectClassNone || *s == admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	for _, v := range source.AdmissionReviewVersions {
		if v == reviewV1 || v == reviewV1beta1 {
			out.version = v
			break
		}
	}
	if out.version == "" {
		out.err = fmt.Errorf("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
	}
	criteria := matcher.Criteria{
		Rules: matcher.Unnamed(source.Rules), Exact: source.MatchPolicy != nil && *source.MatchPolicy == admissionregistrationv1.Exact,
		Namespaces: source.NamespaceSelector, Objects: source.ObjectSelector,
	}
	var err error
	if out.criteria, err = matcher.Compile(criteria); err != nil {
		out.err = err
		criteria.Namespaces = nil
		criteria.Objects = nil
		out.criteria, _ = matcher.Compile(criteria) // rules always compile
	}
	if len(source.MatchConditions) == 0 {
		return out
	}
	conditionCompiler, err := compiler()
	if err != nil {
		out.err = err
		return out
	}
	out.conditions = matcher.CompileConditions(conditionCompiler, expressions.VariableSet{Authorizer: true}, source.MatchConditions, !out.ignore)
	return out
}

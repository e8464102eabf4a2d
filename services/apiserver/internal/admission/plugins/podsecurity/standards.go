package podsecurity

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	configapi "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	apistatus "binnacle/services/apiserver/internal/status"
)

// standards evaluates requests by the Pod Security Standards. It replaces the package admission of
// k8s.io/pod-security-admission, which imports the clientset of client-go. No other part of the
// server needs that clientset.
type standards struct {
	exemptions configapi.PodSecurityExemptions
	defaults   api.Policy
	checks     policy.Evaluator
	metrics    *Metrics
	objects    Objects
}

// result is the result of evaluating a request. The zero value admits the request.
type result struct {
	rejected    *metav1.Status
	warnings    []string
	annotations map[string]string // audit annotations
}

// exemptResult admits a request that is exempt from all standards for a reason.
func exemptResult(reason string) result {
	return result{annotations: map[string]string{api.ExemptionReasonAnnotationKey: reason}}
}

// failedResult rejects a request that could not be evaluated. cause may be nil.
func failedResult(status metav1.Status, cause error) result {
	detail := status.Message
	if cause != nil {
		detail = fmt.Sprintf("%s: %v", detail, cause)
	}
	return result{rejected: &status, annotations: map[string]string{"error": detail}}
}

// ignoredErrorResult admits a request that could not be evaluated. The audit event contains the
// formatted error.
func ignoredErrorResult(format string, args ...any) result {
	return result{annotations: map[string]string{"error": fmt.Sprintf(format, args...)}}
}

// badRequestResult rejects a request whose objects have unexpected types.
func badRequestResult(message string) result {
	return failedResult(apierrors.NewBadRequest(message).ErrStatus, nil)
}

// evaluateNamespace rejects a namespace with invalid labels. If the namespace is about to enforce a
// stricter standard, evaluateNamespace also warns about existing pods that violate it.
func (s *standards) evaluateNamespace(ctx context.Context, attrs api.Attributes, obj, old any) (result, error) {
	if attrs.GetSubresource() != "" {
		return result{}, nil
	}
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		return badRequestResult("failed to decode namespace"), nil
	}
	next, errs := api.PolicyToEvaluate(namespace.Labels, s.defaults)
	invalid := func() result {
		return result{rejected: &apistatus.Invalid(attrs.GetKind().GroupKind(), attrs.GetName(), errs).ErrStatus}
	}
	if attrs.GetOperation() == admissionv1.Create {
		switch {
		case len(errs) > 0:
			return invalid(), nil
		case s.isExemptNamespace(attrs.GetNamespace()):
			return s.exemptNamespaceResult(namespace, next), nil
		}
		return result{}, nil
	}
	oldNamespace, ok := old.(*corev1.Namespace)
	if !ok {
		return badRequestResult("failed to decode  old namespace"), nil
	}
	before, oldErrs := api.PolicyToEvaluate(oldNamespace.Labels, s.defaults)
	switch {
	case len(errs) > 0 && (len(oldErrs) == 0 || !reflect.DeepEqual(errs, oldErrs)):
		return invalid(), nil
	case next.Enforce == before.Enforce, next.Enforce.Level == api.LevelPrivileged,
		next.Enforce.Version == before.Enforce.Version && api.CompareLevels(next.Enforce.Level, before.Enforce.Level) < 1:
		return result{}, nil // not stricter
	case s.isExemptNamespace(attrs.GetNamespace()):
		return s.exemptNamespaceResult(namespace, next), nil
	}
	warnings, err := s.checkExisting(ctx, namespace.Name, next.Enforce)
	return result{warnings: warnings}, err
}

// exemptNamespaceResult admits an exempt namespace, and warns if its labels ask for a standard,
// which has no effect.
func (s *standards) exemptNamespaceResult(namespace *corev1.Namespace, policy api.Policy) result {
	if policy.FullyPrivileged() || policy.Equivalent(&s.defaults) {
		return result{}
	}
	var ignored []string
	for _, mode := range []struct {
		name, level, version string
		standard             api.LevelVersion
	}{
		{name: "enforce", level: api.EnforceLevelLabel, version: api.EnforceVersionLabel, standard: policy.Enforce},
		{name: "audit", level: api.AuditLevelLabel, version: api.AuditVersionLabel, standard: policy.Audit},
		{name: "warn", level: api.WarnLevelLabel, version: api.WarnVersionLabel, standard: policy.Warn},
	} {
		_, hasLevel := namespace.Labels[mode.level]
		_, hasVersion := namespace.Labels[mode.version]
		if mode.standard.Level != api.LevelPrivileged && (hasLevel || hasVersion) {
			ignored = append(ignored, mode.name+"="+mode.standard.String())
		}
	}
	return result{
		warnings: []string{
			fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored",
				namespace.Name, strings.Join(ignored, ", ")),
		},
	}
}

// ignoredSubresources holds the subresources of pods that cannot change a field that the standards
// evaluate.
var ignoredSubresources = []string{"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}

// evaluatePod evaluates a new pod, or a pod with new images, by all standards of its namespace.
func (s *standards) evaluatePod(ctx context.Context, attrs api.Attributes, obj, old any) result {
	if slices.Contains(ignoredSubresources, attrs.GetSubresource()) {
		return result{}
	}
	if reason := s.exemptReason(attrs); reason != "" {
		return exemptResult(reason)
	}
	namespace, err := s.objects.GetNamespace(ctx, attrs.GetNamespace())
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to fetch pod namespace", "namespace", attrs.GetNamespace())
		s.metrics.recordError(true, attrs)
		return failedResult(
			apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", attrs.GetNamespace())).ErrStatus,
			err,
		)
	}
	policy, errs := api.PolicyToEvaluate(namespace.Labels, s.defaults)
	if len(errs) == 0 && policy.FullyPrivileged() {
		s.metrics.recordEvaluation(allow, policy.Enforce, enforce, attrs)
		privileged := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
		return result{annotations: map[string]string{api.EnforcedPolicyAnnotationKey: privileged.String()}}
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		s.metrics.recordError(true, attrs)
		return badRequestResult("failed to decode pod")
	}
	if attrs.GetOperation() == admissionv1.Update {
		oldPod, ok := old.(*corev1.Pod)
		if !ok {
			s.metrics.recordError(true, attrs)
			return badRequestResult("failed to decode old pod")
		}
		if !changesImages(&pod.Spec, &oldPod.Spec) {
			return result{}
		}
	}
	return s.evaluate(attrs, policy, errs.ToAggregate(), &pod.ObjectMeta, &pod.Spec, true)
}

// changesImages reports whether an update of a pod changes an image or adds an ephemeral container.
// The standards evaluate no other mutable fields.
func changesImages(updated, old *corev1.PodSpec) bool {
	image := func(c corev1.Container) string { return c.Image }
	if !equalBy(updated.Containers, old.Containers, image) || !equalBy(updated.InitContainers, old.InitContainers, image) {
		return true
	}
	for _, added := range updated.EphemeralContainers {
		i := slices.IndexFunc(old.EphemeralContainers, func(existing corev1.EphemeralContainer) bool { return existing.Name == added.Name })
		if i < 0 || old.EphemeralContainers[i].Image != added.Image {
			return true
		}
	}
	return false
}

// equalBy reports whether two lists have the same length and equal values at each index.
func equalBy[T any](a, b []T, value func(T) string) bool {
	return slices.EqualFunc(a, b, func(x, y T) bool { return value(x) == value(y) })
}

// evaluateTemplate evaluates the pod template of an object by the audit and warn standards of its
// namespace. It never rejects the object; the enforced standard applies to the pods.
func (s *standards) evaluateTemplate(ctx context.Context, attrs api.Attributes, obj any) result {
	if attrs.GetSubresource() != "" {
		return result{}
	}
	if reason := s.exemptReason(attrs); reason != "" {
		return exemptResult(reason)
	}
	namespace, err := s.objects.GetNamespace(ctx, attrs.GetNamespace())
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to fetch pod namespace", "namespace", attrs.GetNamespace())
		s.metrics.recordError(true, attrs)
		return ignoredErrorResult("failed to lookup namespace %q: %v", attrs.GetNamespace(), err)
	}
	policy, errs := api.PolicyToEvaluate(namespace.Labels, s.defaults)
	if len(errs) == 0 && policy.Warn.Level == api.LevelPrivileged && policy.Audit.Level == api.LevelPrivileged {
		return result{}
	}
	template, err := templateOf(obj)
	switch {
	case err != nil:
		s.metrics.recordError(true, attrs)
		return ignoredErrorResult("failed to extract pod template: %v", err)
	case template == nil: // optional
		return result{}
	}
	return s.evaluate(attrs, policy, errs.ToAggregate(), &template.ObjectMeta, &template.Spec, false)
}

// evaluate evaluates a pod or a pod template by the audit and warn standards of a policy. If
// enforced is set, it also applies the enforce standard. malformed is the error of parsing the
// policy from the labels of the namespace, or nil.
func (s *standards) evaluate(
	attrs api.Attributes,
	namespacePolicy api.Policy,
	malformed error,
	meta *metav1.ObjectMeta,
	spec *corev1.PodSpec,
	enforced bool,
) result {
	if s.isExemptRuntimeClass(spec.RuntimeClassName) {
		s.metrics.recordExemption(attrs)
		return exemptResult("runtimeClass")
	}
	out := result{annotations: map[string]string{}}
	if malformed != nil {
		out.annotations["error"] = fmt.Sprintf("Failed to parse policy: %v", malformed)
		s.metrics.recordError(false, attrs)
	}
	// The standards of the three modes are often equal, so each result is computed once.
	results := map[api.LevelVersion]policy.AggregateCheckResult{}
	resultOf := func(standard api.LevelVersion) policy.AggregateCheckResult {
		known, ok := results[standard]
		if !ok {
			known = policy.AggregateCheckResults(s.checks.EvaluatePod(standard, meta, spec))
			results[standard] = known
		}
		return known
	}
	if enforced {
		out.annotations[api.EnforcedPolicyAnnotationKey] = namespacePolicy.Enforce.String()
		decision := allow
		if checked := resultOf(namespacePolicy.Enforce); !checked.Allowed {
			decision = deny
			err := fmt.Errorf("violates PodSecurity %q: %s", namespacePolicy.Enforce.String(), checked.ForbiddenDetail())
			out.rejected = &apierrors.NewForbidden(attrs.GetResource().GroupResource(), attrs.GetName(), err).ErrStatus
		}
		s.metrics.recordEvaluation(decision, namespacePolicy.Enforce, enforce, attrs)
	}
	if checked := resultOf(namespacePolicy.Audit); !checked.Allowed {
		out.annotations[api.AuditViolationsAnnotationKey] = fmt.Sprintf("would violate PodSecurity %q: %s",
			namespacePolicy.Audit.String(), checked.ForbiddenDetail())
		s.metrics.recordEvaluation(deny, namespacePolicy.Audit, audit, attrs)
	}
	if out.rejected != nil { // the client gets the error and needs no warning
		return out
	}
	if checked := resultOf(namespacePolicy.Warn); !checked.Allowed {
		out.warnings = append(out.warnings, fmt.Sprintf("would violate PodSecurity %q: %s", namespacePolicy.Warn.String(), checked.ForbiddenDetail()))
		s.metrics.recordEvaluation(deny, namespacePolicy.Warn, warn, attrs)
	}
	return out
}

// exemptReason returns "namespace" or "user" if a request is exempt because of it, and ""
// otherwise. It counts exempt requests in the metrics.
func (s *standards) exemptReason(attrs api.Attributes) string {
	var reason string
	user := attrs.GetUserName()
	switch {
	case s.isExemptNamespace(attrs.GetNamespace()):
		reason = "namespace"
	case user != "" && slices.Contains(s.exemptions.Usernames, user):
		reason = "user"
	default:
		return ""
	}
	s.metrics.recordExemption(attrs)
	return reason
}

// isExemptNamespace reports whether the configuration exempts a namespace.
func (s *standards) isExemptNamespace(name string) bool {
	return name != "" && slices.Contains(s.exemptions.Namespaces, name)
}

// isExemptRuntimeClass reports whether the configuration exempts pods of a runtime class.
func (s *standards) isExemptRuntimeClass(name *string) bool {
	return name != nil && *name != "" && slices.Contains(s.exemptions.RuntimeClasses, *name)
}

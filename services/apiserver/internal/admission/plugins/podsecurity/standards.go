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

// standards applies the Pod Security Standards. The library's own package for it imports the
// clientset of client-go, which no other part of the server needs.
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
	annotations map[string]string // of the audit event
}

// exempt returns the result of a request that is exempt for a reason.
func exempt(reason string) result {
	return result{annotations: map[string]string{api.ExemptionReasonAnnotationKey: reason}}
}

// failed returns the result of a request that is rejected because it could not be evaluated.
func failed(s metav1.Status, cause error) result {
	detail := s.Message
	if cause != nil {
		detail = fmt.Sprintf("%s: %v", detail, cause)
	}
	return result{rejected: &s, annotations: map[string]string{"error": detail}}
}

// ignored returns the result of a request that is admitted although its standards cannot be
// determined.
func ignored(format string, args ...any) result {
	return result{annotations: map[string]string{"error": fmt.Sprintf(format, args...)}}
}

func badRequest(message string) result {
	return failed(apierrors.NewBadRequest(message).ErrStatus, nil)
}

// namespace evaluates the labels of a namespace. A new standard is compared with existing pods.
func (s *standards) namespace(ctx context.Context, attrs api.Attributes, obj, old any) (result, error) {
	if attrs.GetSubresource() != "" {
		return result{}, nil
	}
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		return badRequest("failed to decode namespace"), nil
	}
	next, errs := api.PolicyToEvaluate(namespace.Labels, s.defaults)
	invalid := func() result {
		return result{rejected: &apistatus.Invalid(attrs.GetKind().GroupKind(), attrs.GetName(), errs).ErrStatus}
	}
	if attrs.GetOperation() == admissionv1.Create {
		switch {
		case len(errs) > 0:
			return invalid(), nil
		case s.exemptNamespace(attrs.GetNamespace()):
			return s.exemptAnswer(namespace, next), nil
		}
		return result{}, nil
	}
	oldNamespace, ok := old.(*corev1.Namespace)
	if !ok {
		return badRequest("failed to decode  old namespace"), nil
	}
	before, oldErrs := api.PolicyToEvaluate(oldNamespace.Labels, s.defaults)
	switch {
	case len(errs) > 0 && (len(oldErrs) == 0 || !reflect.DeepEqual(errs, oldErrs)):
		return invalid(), nil
	case next.Enforce == before.Enforce, next.Enforce.Level == api.LevelPrivileged,
		next.Enforce.Version == before.Enforce.Version && api.CompareLevels(next.Enforce.Level, before.Enforce.Level) < 1:
		return result{}, nil // not stricter
	case s.exemptNamespace(attrs.GetNamespace()):
		return s.exemptAnswer(namespace, next), nil
	}
	warnings, err := s.checkExisting(ctx, namespace.Name, next.Enforce)
	return result{warnings: warnings}, err
}

// exemptAnswer warns of labels of an exempt namespace that have no effect.
func (s *standards) exemptAnswer(ns *corev1.Namespace, p api.Policy) result {
	if p.FullyPrivileged() || p.Equivalent(&s.defaults) {
		return result{}
	}
	var set []string
	for _, m := range []struct {
		name, level, version string
		standard             api.LevelVersion
	}{
		{name: "enforce", level: api.EnforceLevelLabel, version: api.EnforceVersionLabel, standard: p.Enforce},
		{name: "audit", level: api.AuditLevelLabel, version: api.AuditVersionLabel, standard: p.Audit},
		{name: "warn", level: api.WarnLevelLabel, version: api.WarnVersionLabel, standard: p.Warn},
	} {
		_, hasLevel := ns.Labels[m.level]
		_, hasVersion := ns.Labels[m.version]
		if m.standard.Level != api.LevelPrivileged && (hasLevel || hasVersion) {
			set = append(set, m.name+"="+m.standard.String())
		}
	}
	return result{warnings: []string{fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", ns.Name, strings.Join(set, ", "))}}
}

// ignoredSubresources holds the subresources of pods that cannot change what the standards look at.
var ignoredSubresources = []string{"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}

// pod evaluates a pod.
func (s *standards) pod(ctx context.Context, attrs api.Attributes, obj, old any) result {
	if slices.Contains(ignoredSubresources, attrs.GetSubresource()) {
		return result{}
	}
	if reason := s.exemptReason(attrs); reason != "" {
		return exempt(reason)
	}
	ns, err := s.objects.GetNamespace(ctx, attrs.GetNamespace())
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to fetch pod namespace", "namespace", attrs.GetNamespace())
		s.metrics.recordError(true, attrs)
		return failed(apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", attrs.GetNamespace())).ErrStatus, err)
	}
	p, errs := api.PolicyToEvaluate(ns.Labels, s.defaults)
	if len(errs) == 0 && p.FullyPrivileged() {
		s.metrics.recordEvaluation(allow, p.Enforce, enforce, attrs)
		privileged := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
		return result{annotations: map[string]string{api.EnforcedPolicyAnnotationKey: privileged.String()}}
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		s.metrics.recordError(true, attrs)
		return badRequest("failed to decode pod")
	}
	if attrs.GetOperation() == admissionv1.Update {
		oldPod, ok := old.(*corev1.Pod)
		if !ok {
			s.metrics.recordError(true, attrs)
			return badRequest("failed to decode old pod")
		}
		if !changesImages(&pod.Spec, &oldPod.Spec) {
			return result{}
		}
	}
	return s.evaluate(attrs, p, errs.ToAggregate(), &pod.ObjectMeta, &pod.Spec, true)
}

// changesImages reports whether an update of a pod changes an image or adds an ephemeral container.
// The standards evaluate no other mutable fields.
func changesImages(updated, old *corev1.PodSpec) bool {
	image := func(c corev1.Container) string { return c.Image }
	if !equalBy(updated.Containers, old.Containers, image) || !equalBy(updated.InitContainers, old.InitContainers, image) {
		return true
	}
	for _, c := range updated.EphemeralContainers {
		i := slices.IndexFunc(old.EphemeralContainers, func(o corev1.EphemeralContainer) bool { return o.Name == c.Name })
		if i < 0 || old.EphemeralContainers[i].Image != c.Image {
			return true
		}
	}
	return false
}

// equalBy reports whether two lists have the same length and equal values at each index.
func equalBy[T any](a, b []T, value func(T) string) bool {
	return slices.EqualFunc(a, b, func(x, y T) bool { return value(x) == value(y) })
}

// template evaluates the pod template of an object. Nothing is enforced on it.
func (s *standards) template(ctx context.Context, attrs api.Attributes, obj any) result {
	if attrs.GetSubresource() != "" {
		return result{}
	}
	if reason := s.exemptReason(attrs); reason != "" {
		return exempt(reason)
	}
	ns, err := s.objects.GetNamespace(ctx, attrs.GetNamespace())
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to fetch pod namespace", "namespace", attrs.GetNamespace())
		s.metrics.recordError(true, attrs)
		return ignored("failed to lookup namespace %q: %v", attrs.GetNamespace(), err)
	}
	p, errs := api.PolicyToEvaluate(ns.Labels, s.defaults)
	if len(errs) == 0 && p.Warn.Level == api.LevelPrivileged && p.Audit.Level == api.LevelPrivileged {
		return result{}
	}
	template, err := templateOf(obj)
	switch {
	case err != nil:
		s.metrics.recordError(true, attrs)
		return ignored("failed to extract pod template: %v", err)
	case template == nil: // optional
		return result{}
	}
	return s.evaluate(attrs, p, errs.ToAggregate(), &template.ObjectMeta, &template.Spec, false)
}

// evaluate evaluates a pod or a pod template by the audit and warn standards of a policy, and if
// enforced is set by its enforce standard. malformed is the error of parsing the policy.
func (s *standards) evaluate(attrs api.Attributes, p api.Policy, malformed error, meta *metav1.ObjectMeta, spec *corev1.PodSpec, enforced bool) result {
	if s.exemptRuntimeClass(spec.RuntimeClassName) {
		s.metrics.recordExemption(attrs)
		return exempt("runtimeClass")
	}
	out := result{annotations: map[string]string{}}
	if malformed != nil {
		out.annotations["error"] = fmt.Sprintf("Failed to parse policy: %v", malformed)
		s.metrics.recordError(false, attrs)
	}
	results := map[api.LevelVersion]policy.AggregateCheckResult{}
	result := func(standard api.LevelVersion) policy.AggregateCheckResult {
		r, ok := results[standard]
		if !ok {
			r = policy.AggregateCheckResults(s.checks.EvaluatePod(standard, meta, spec))
			results[standard] = r
		}
		return r
	}
	if enforced {
		out.annotations[api.EnforcedPolicyAnnotationKey] = p.Enforce.String()
		decision := allow
		if r := result(p.Enforce); !r.Allowed {
			decision = deny
			err := fmt.Errorf("violates PodSecurity %q: %s", p.Enforce.String(), r.ForbiddenDetail())
			out.rejected = &apierrors.NewForbidden(attrs.GetResource().GroupResource(), attrs.GetName(), err).ErrStatus
		}
		s.metrics.recordEvaluation(decision, p.Enforce, enforce, attrs)
	}
	if r := result(p.Audit); !r.Allowed {
		out.annotations[api.AuditViolationsAnnotationKey] = fmt.Sprintf("would violate PodSecurity %q: %s", p.Audit.String(), r.ForbiddenDetail())
		s.metrics.recordEvaluation(deny, p.Audit, audit, attrs)
	}
	if out.rejected != nil { // it needs no warning
		return out
	}
	if r := result(p.Warn); !r.Allowed {
		out.warnings = append(out.warnings, fmt.Sprintf("would violate PodSecurity %q: %s", p.Warn.String(), r.ForbiddenDetail()))
		s.metrics.recordEvaluation(deny, p.Warn, warn, attrs)
	}
	return out
}

// exemptReason returns why a request is exempt, "namespace" or "user", or "" if it is not. It counts
// exempt requests.
func (s *standards) exemptReason(attrs api.Attributes) string {
	var reason string
	user := attrs.GetUserName()
	switch {
	case s.exemptNamespace(attrs.GetNamespace()):
		reason = "namespace"
	case user != "" && slices.Contains(s.exemptions.Usernames, user):
		reason = "user"
	default:
		return ""
	}
	s.metrics.recordExemption(attrs)
	return reason
}

func (s *standards) exemptNamespace(name string) bool {
	return name != "" && slices.Contains(s.exemptions.Namespaces, name)
}

func (s *standards) exemptRuntimeClass(name *string) bool {
	return name != nil && *name != "" && slices.Contains(s.exemptions.RuntimeClasses, *name)
}

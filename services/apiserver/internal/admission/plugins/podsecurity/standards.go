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

// answer is the result of a request. The zero answer admits it.
type answer struct {
	rejected    *metav1.Status
	warnings    []string
	annotations map[string]string // of the audit event
}

// exempt admits a request for the reason.
func exempt(reason string) answer {
	return answer{annotations: map[string]string{api.ExemptionReasonAnnotationKey: reason}}
}

// failed rejects a request with an error that is not about the standards.
func failed(s metav1.Status, cause error) answer {
	detail := s.Message
	if cause != nil {
		detail = fmt.Sprintf("%s: %v", detail, cause)
	}
	return answer{rejected: &s, annotations: map[string]string{"error": detail}}
}

// ignored admits a request whose standards cannot be determined.
func ignored(format string, args ...any) answer {
	return answer{annotations: map[string]string{"error": fmt.Sprintf(format, args...)}}
}

func badRequest(message string) answer {
	return failed(apierrors.NewBadRequest(message).ErrStatus, nil)
}

// namespace evaluates the labels of a namespace. A new standard is compared with existing pods.
func (s *standards) namespace(ctx context.Context, a api.Attributes, obj, old any) (answer, error) {
	if a.GetSubresource() != "" {
		return answer{}, nil
	}
	now, ok := obj.(*corev1.Namespace)
	if !ok {
		return badRequest("failed to decode namespace"), nil
	}
	next, errs := api.PolicyToEvaluate(now.Labels, s.defaults)
	invalid := func() answer {
		return answer{rejected: &apistatus.Invalid(a.GetKind().GroupKind(), a.GetName(), errs).ErrStatus}
	}
	if a.GetOperation() == admissionv1.Create {
		switch {
		case len(errs) > 0:
			return invalid(), nil
		case s.exemptNamespace(a.GetNamespace()):
			return s.exemptAnswer(now, next), nil
		}
		return answer{}, nil
	}
	was, ok := old.(*corev1.Namespace)
	if !ok {
		return badRequest("failed to decode  old namespace"), nil
	}
	before, oldErrs := api.PolicyToEvaluate(was.Labels, s.defaults)
	switch {
	case len(errs) > 0 && (len(oldErrs) == 0 || !reflect.DeepEqual(errs, oldErrs)):
		return invalid(), nil
	case next.Enforce == before.Enforce, next.Enforce.Level == api.LevelPrivileged,
		next.Enforce.Version == before.Enforce.Version && api.CompareLevels(next.Enforce.Level, before.Enforce.Level) < 1:
		return answer{}, nil // not stricter
	case s.exemptNamespace(a.GetNamespace()):
		return s.exemptAnswer(now, next), nil
	}
	warnings, err := s.existing(ctx, now.Name, next.Enforce)
	return answer{warnings: warnings}, err
}

// exemptAnswer warns of labels of an exempt namespace that have no effect.
func (s *standards) exemptAnswer(ns *corev1.Namespace, p api.Policy) answer {
	if p.FullyPrivileged() || p.Equivalent(&s.defaults) {
		return answer{}
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
	return answer{warnings: []string{fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", ns.Name, strings.Join(set, ", "))}}
}

// ignoredSubresources holds the subresources of pods that cannot change what the standards look at.
var ignoredSubresources = []string{"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}

// pod evaluates a pod.
func (s *standards) pod(ctx context.Context, a api.Attributes, obj, old any) answer {
	if slices.Contains(ignoredSubresources, a.GetSubresource()) {
		return answer{}
	}
	if reason := s.exemptReason(a); reason != "" {
		return exempt(reason)
	}
	ns, err := s.objects.GetNamespace(ctx, a.GetNamespace())
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to fetch pod namespace", "namespace", a.GetNamespace())
		s.metrics.recordError(true, a)
		return failed(apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", a.GetNamespace())).ErrStatus, err)
	}
	p, errs := api.PolicyToEvaluate(ns.Labels, s.defaults)
	if len(errs) == 0 && p.FullyPrivileged() {
		s.metrics.recordEvaluation(allow, p.Enforce, enforce, a)
		privileged := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
		return answer{annotations: map[string]string{api.EnforcedPolicyAnnotationKey: privileged.String()}}
	}
	now, ok := obj.(*corev1.Pod)
	if !ok {
		s.metrics.recordError(true, a)
		return badRequest("failed to decode pod")
	}
	if a.GetOperation() == admissionv1.Update {
		was, ok := old.(*corev1.Pod)
		if !ok {
			s.metrics.recordError(true, a)
			return badRequest("failed to decode old pod")
		}
		if !changesImages(&now.Spec, &was.Spec) {
			return answer{}
		}
	}
	return s.evaluate(a, p, errs.ToAggregate(), &now.ObjectMeta, &now.Spec, true)
}

// changesImages reports whether an update of a pod changes what the standards look at: of the
// mutable fields only images, and new ephemeral containers.
func changesImages(now, was *corev1.PodSpec) bool {
	image := func(c corev1.Container) string { return c.Image }
	if !equalBy(now.Containers, was.Containers, image) || !equalBy(now.InitContainers, was.InitContainers, image) {
		return true
	}
	for _, c := range now.EphemeralContainers {
		i := slices.IndexFunc(was.EphemeralContainers, func(o corev1.EphemeralContainer) bool { return o.Name == c.Name })
		if i < 0 || was.EphemeralContainers[i].Image != c.Image {
			return true
		}
	}
	return false
}

// equalBy reports whether two lists are of the same length with equal values at each place.
func equalBy[T any](a, b []T, value func(T) string) bool {
	return slices.EqualFunc(a, b, func(x, y T) bool { return value(x) == value(y) })
}

// template evaluates the pod template of an object. Nothing is enforced on it.
func (s *standards) template(ctx context.Context, a api.Attributes, obj any) answer {
	if a.GetSubresource() != "" {
		return answer{}
	}
	if reason := s.exemptReason(a); reason != "" {
		return exempt(reason)
	}
	ns, err := s.objects.GetNamespace(ctx, a.GetNamespace())
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to fetch pod namespace", "namespace", a.GetNamespace())
		s.metrics.recordError(true, a)
		return ignored("failed to lookup namespace %q: %v", a.GetNamespace(), err)
	}
	p, errs := api.PolicyToEvaluate(ns.Labels, s.defaults)
	if len(errs) == 0 && p.Warn.Level == api.LevelPrivileged && p.Audit.Level == api.LevelPrivileged {
		return answer{}
	}
	template, err := templateOf(obj)
	switch {
	case err != nil:
		s.metrics.recordError(true, a)
		return ignored("failed to extract pod template: %v", err)
	case template == nil: // optional
		return answer{}
	}
	return s.evaluate(a, p, errs.ToAggregate(), &template.ObjectMeta, &template.Spec, false)
}

// evaluate evaluates a pod or a pod template in the modes of a policy, the first only for pods.
func (s *standards) evaluate(a api.Attributes, p api.Policy, malformed error, m *metav1.ObjectMeta, spec *corev1.PodSpec, enforced bool) answer {
	if s.exemptRuntimeClass(spec.RuntimeClassName) {
		s.metrics.recordExemption(a)
		return exempt("runtimeClass")
	}
	out := answer{annotations: map[string]string{}}
	if malformed != nil {
		out.annotations["error"] = fmt.Sprintf("Failed to parse policy: %v", malformed)
		s.metrics.recordError(false, a)
	}
	results := map[api.LevelVersion]policy.AggregateCheckResult{}
	result := func(standard api.LevelVersion) policy.AggregateCheckResult {
		r, ok := results[standard]
		if !ok {
			r = policy.AggregateCheckResults(s.checks.EvaluatePod(standard, m, spec))
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
			out.rejected = &apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), err).ErrStatus
		}
		s.metrics.recordEvaluation(decision, p.Enforce, enforce, a)
	}
	if r := result(p.Audit); !r.Allowed {
		out.annotations[api.AuditViolationsAnnotationKey] = fmt.Sprintf("would violate PodSecurity %q: %s", p.Audit.String(), r.ForbiddenDetail())
		s.metrics.recordEvaluation(deny, p.Audit, audit, a)
	}
	if out.rejected != nil { // it needs no warning
		return out
	}
	if r := result(p.Warn); !r.Allowed {
		out.warnings = append(out.warnings, fmt.Sprintf("would violate PodSecurity %q: %s", p.Warn.String(), r.ForbiddenDetail()))
		s.metrics.recordEvaluation(deny, p.Warn, warn, a)
	}
	return out
}

// exemptReason counts a request of an exempt namespace or user, and returns which it is.
func (s *standards) exemptReason(a api.Attributes) string {
	var reason string
	user := a.GetUserName()
	switch {
	case s.exemptNamespace(a.GetNamespace()):
		reason = "namespace"
	case user != "" && slices.Contains(s.exemptions.Usernames, user):
		reason = "user"
	default:
		return ""
	}
	s.metrics.recordExemption(a)
	return reason
}

func (s *standards) exemptNamespace(name string) bool {
	return name != "" && slices.Contains(s.exemptions.Namespaces, name)
}

func (s *standards) exemptRuntimeClass(name *string) bool {
	return name != nil && *name != "" && slices.Contains(s.exemptions.RuntimeClasses, *name)
}

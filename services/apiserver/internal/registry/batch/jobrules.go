package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/registry/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// jobRules are those of a job whose pods have been marked.
func jobRules(at validate.At, rules *podspec.Rules, s *batchv1.JobSpec, old *corev1.PodTemplateSpec) {
	jobPartRules(at, rules, s, old)
	if s.Selector == nil {
		at.Required("selector", "")
	}
	at.Selector("selector", s.Selector, false)
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !selector.Matches(labels.Set(s.Template.Labels)) {
		at.Child("template", "metadata").Invalid("labels", s.Template.Labels, "`selector` does not match template `labels`")
	}
}

// jobPartRules are those that jobs and their templates have in common.
func jobPartRules(at validate.At, rules *podspec.Rules, s *batchv1.JobSpec, old *corev1.PodTemplateSpec) {
	validate.OptionalNonNegative(at, "parallelism", s.Parallelism)
	validate.OptionalNonNegative(at, "completions", s.Completions)
	validate.OptionalNonNegative(at, "activeDeadlineSeconds", s.ActiveDeadlineSeconds)
	validate.OptionalNonNegative(at, "backoffLimit", s.BackoffLimit)
	validate.OptionalNonNegative(at, "ttlSecondsAfterFinished", s.TTLSecondsAfterFinished)
	if m := s.CompletionMode; m != nil {
		validate.OneOf(at, "completionMode", *m, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
		if *m == batchv1.IndexedCompletion && s.Completions == nil {
			at.Required("completions", "when completion mode is Indexed")
		}
	}
	rules.Template(at.Child("template"), &s.Template, old)
	pods := at.Child("template", "spec")
	switch policy := s.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyAlways:
		pods.Required("restartPolicy", `valid values: "OnFailure", "Never"`)
	default:
		validate.OneOf(pods, "restartPolicy", policy, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
}

// jobChanges keep what the pods of a job come of. A job that is suspended and
// has not begun may change where its pods are to run (KEP-2926).
func jobChanges(at validate.At, j, old *batchv1.Job) {
	s, was := &j.Spec, &old.Spec
	grows := s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion &&
		validate.Same(s.Completions, s.Parallelism) && s.Completions != nil
	if !grows {
		at.Immutable("completions", s.Completions, was.Completions)
	}
	at.Immutable("selector", s.Selector, was.Selector)
	template := was.Template.DeepCopy()
	if was.Suspend != nil && *was.Suspend && old.Status.StartTime == nil {
		moveScheduling(template, &s.Template)
	}
	at.Immutable("template", s.Template, *template)
	at.Immutable("completionMode", s.CompletionMode, was.CompletionMode)
	at.Immutable("podFailurePolicy", s.PodFailurePolicy, was.PodFailurePolicy)
	at.Immutable("backoffLimitPerIndex", s.BackoffLimitPerIndex, was.BackoffLimitPerIndex)
	at.Immutable("managedBy", s.ManagedBy, was.ManagedBy)
	at.Immutable("successPolicy", s.SuccessPolicy, was.SuccessPolicy)
}

// moveScheduling takes over where pods are to run.
func moveScheduling(to, from *corev1.PodTemplateSpec) {
	to.Labels, to.Annotations = from.Labels, from.Annotations
	to.Spec.NodeSelector, to.Spec.Tolerations = from.Spec.NodeSelector, from.Spec.Tolerations
	to.Spec.SchedulingGates = from.Spec.SchedulingGates
	switch {
	case from.Spec.Affinity == nil && to.Spec.Affinity != nil:
		to.Spec.Affinity.NodeAffinity = nil
		if *to.Spec.Affinity == (corev1.Affinity{}) {
			to.Spec.Affinity = nil
		}
	case from.Spec.Affinity != nil && to.Spec.Affinity == nil:
		to.Spec.Affinity = &corev1.Affinity{NodeAffinity: from.Spec.Affinity.NodeAffinity}
	case from.Spec.Affinity != nil:
		to.Spec.Affinity.NodeAffinity = from.Spec.Affinity.NodeAffinity
	}
}

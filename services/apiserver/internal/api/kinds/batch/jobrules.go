package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Limits of jobs.
const (
	// mostIndexes is the maximum parallelism, and of failed indexes, of an indexed job.
	mostIndexes = 100_000
	// With more completions than manyCompletions, jobs that count failures per index have lower
	// limits.
	manyCompletions  = 100_000
	mostOfMany       = 10_000
	managedByLength  = 63
	parallelWarnedOf = 10_000
)

// validateJob validates a job whose pods have been labeled. old is nil at creation.
func validateJob(fld validate.Field, rules *podspec.Rules, j, old *batchv1.Job) {
	var template *corev1.PodTemplateSpec
	if old != nil {
		template = &old.Spec.Template
	}
	validateGeneratedSelector(fld, j, template)
	validateJobSpec(fld.Child("spec"), rules, &j.Spec, template)
	if s := &j.Spec; isIndexed(s) && s.Completions != nil && *s.Completions > 0 {
		if host := fmt.Sprintf("%s-%d", j.Name, *s.Completions-1); len(validate.DNSLabel(host)) > 0 {
			fld.Child("metadata").Invalid("name", j.Name, "will not able to create pod with invalid DNS label: "+host)
		}
	}
}

// validateGeneratedSelector requires the labels on the pods of a job with a generated selector. The
// prefixed labels are optional for a job from before they existed.
func validateGeneratedSelector(fld validate.Field, j *batchv1.Job, old *corev1.PodTemplateSpec) {
	s := &j.Spec
	if s.ManualSelector != nil && *s.ManualSelector || s.Selector == nil {
		return
	}
	fld.Child("metadata").RequireSet("uid", j.UID != "")
	uid, name := string(j.UID), j.Name
	expected := labels.Set{oldControllerUID: uid, oldJobName: name}
	marks := []string{oldControllerUID, oldJobName}
	if old == nil || hasLabels(old.Labels, batchv1.JobNameLabel, batchv1.ControllerUidLabel) {
		expected[batchv1.ControllerUidLabel], expected[batchv1.JobNameLabel] = uid, name
		marks = append(marks, batchv1.ControllerUidLabel, batchv1.JobNameLabel)
	}
	template := fld.Child("spec", "template", "metadata")
	for _, key := range marks {
		template.RequireLabel("labels", s.Template.Labels, key, expected[key])
	}
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !selector.Matches(expected) {
		fld.Child("spec").Invalid("selector", *s.Selector, "`selector` not auto-generated")
	}
}

func hasLabels(labels map[string]string, keys ...string) bool {
	for _, key := range keys {
		if _, ok := labels[key]; !ok {
			return false
		}
	}
	return true
}

func validateJobSpec(fld validate.Field, rules *podspec.Rules, s *batchv1.JobSpec, old *corev1.PodTemplateSpec) {
	validateJobParts(fld, rules, s, old)
	fld.RequireSet("selector", s.Selector != nil)
	fld.CheckSelector("selector", s.Selector, false)
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !selector.Matches(labels.Set(s.Template.Labels)) {
		fld.Child("template", "metadata").Invalid("labels", s.Template.Labels, "`selector` does not match template `labels`")
	}
}

// validateJobParts validates the fields that jobs and their templates share.
func validateJobParts(fld validate.Field, rules *podspec.Rules, s *batchv1.JobSpec, old *corev1.PodTemplateSpec) {
	validate.OptionalNonNegative(fld, "parallelism", s.Parallelism)
	validate.OptionalNonNegative(fld, "completions", s.Completions)
	validate.OptionalNonNegative(fld, "activeDeadlineSeconds", s.ActiveDeadlineSeconds)
	validate.OptionalNonNegative(fld, "backoffLimit", s.BackoffLimit)
	validate.OptionalNonNegative(fld, "ttlSecondsAfterFinished", s.TTLSecondsAfterFinished)
	validate.OptionalNonNegative(fld, "backoffLimitPerIndex", s.BackoffLimitPerIndex)
	validate.OptionalNonNegative(fld, "maxFailedIndexes", s.MaxFailedIndexes)
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		fld.Required("backoffLimitPerIndex", "when maxFailedIndexes is specified")
	}
	if s.ManagedBy != nil {
		fld.CheckDomainPath("managedBy", *s.ManagedBy)
		fld.CheckMaxBytes("managedBy", *s.ManagedBy, managedByLength)
	}
	validate.OptionalOneOf(fld, "completionMode", s.CompletionMode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
	validateIndexing(fld, s)
	if s.PodFailurePolicy != nil {
		validateFailurePolicy(fld.Child("podFailurePolicy"), s)
	}
	if s.SuccessPolicy != nil {
		validateSuccessPolicy(fld, s)
	}
	if p := s.PodReplacementPolicy; p != nil && s.PodFailurePolicy != nil {
		validate.OneOf(fld, "podReplacementPolicy", *p, batchv1.Failed)
	} else {
		validate.OptionalOneOf(fld, "podReplacementPolicy", p, batchv1.Failed, batchv1.TerminatingOrFailed)
	}
	rules.ValidateTemplate(fld.Child("template"), &s.Template, old)
	validateRestartPolicy(fld.Child("template", "spec"), s)
}

// isIndexed reports whether the pods of a job have indexes.
func isIndexed(s *batchv1.JobSpec) bool {
	return s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
}

// validateIndexing limits indexed jobs, and rejects their fields in other jobs.
func validateIndexing(fld validate.Field, s *batchv1.JobSpec) {
	exceeds := func(n *int32, maximum int32) bool { return n != nil && *n > maximum }
	if !isIndexed(s) {
		if s.CompletionMode != nil && *s.CompletionMode != batchv1.NonIndexedCompletion {
			return
		}
		const detail = "requires indexed completion mode"
		if s.BackoffLimitPerIndex != nil {
			fld.Invalid("backoffLimitPerIndex", *s.BackoffLimitPerIndex, detail)
		}
		if s.MaxFailedIndexes != nil {
			fld.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, detail)
		}
		return
	}
	if s.Completions == nil {
		fld.Required("completions", "when completion mode is Indexed")
	}
	if exceeds(s.Parallelism, mostIndexes) {
		fld.Invalid("parallelism", *s.Parallelism,
			fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", mostIndexes))
	}
	if s.Completions != nil && exceeds(s.MaxFailedIndexes, *s.Completions) {
		fld.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, "must be less than or equal to completions")
	}
	if exceeds(s.MaxFailedIndexes, mostIndexes) {
		fld.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, fmt.Sprintf("must be less than or equal to %d", mostIndexes))
	}
	if s.BackoffLimitPerIndex == nil || !exceeds(s.Completions, manyCompletions) {
		return
	}
	if s.MaxFailedIndexes == nil {
		fld.Required("maxFailedIndexes", fmt.Sprintf("must be specified when completions is above %d", manyCompletions))
	}
	tooMany := fmt.Sprintf(
		"must be less than or equal to %d when completions are above %d and used with backoff limit per index",
		mostOfMany, manyCompletions)
	if exceeds(s.Parallelism, mostOfMany) {
		fld.Invalid("parallelism", *s.Parallelism, tooMany)
	}
	if exceeds(s.MaxFailedIndexes, mostOfMany) {
		fld.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, tooMany)
	}
}

func validateRestartPolicy(fld validate.Field, s *batchv1.JobSpec) {
	switch policy := s.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyAlways, "":
		fld.Required("restartPolicy", `valid values: "OnFailure", "Never"`)
	case corev1.RestartPolicyNever:
	case corev1.RestartPolicyOnFailure:
		if s.PodFailurePolicy != nil {
			fld.Invalid("restartPolicy", policy, `only "Never" is supported when podFailurePolicy is specified`)
		}
	default:
		validate.OneOf(fld, "restartPolicy", policy, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
}

// validateJobChanges rejects changes of fields that existing pods depend on. A suspended job that
// has not started may change its scheduling directives (KEP-2926).
func validateJobChanges(fld validate.Field, j, old *batchv1.Job) {
	s, was := &j.Spec, &old.Spec
	switch {
	case !isIndexed(s):
		fld.CheckImmutable("completions", s.Completions, was.Completions)
	case s.Completions != nil && !validate.SemanticEqual(s.Completions, was.Completions) && !validate.SemanticEqual(s.Completions, s.Parallelism):
		fld.Invalid("completions", s.Completions, "can only be modified in tandem with spec.parallelism")
	}
	fld.CheckImmutable("selector", s.Selector, was.Selector)
	template := was.Template.DeepCopy()
	if was.Suspend != nil && *was.Suspend && old.Status.StartTime == nil {
		moveScheduling(template, &s.Template)
	}
	fld.CheckImmutable("template", s.Template, *template)
	fld.CheckImmutable("completionMode", s.CompletionMode, was.CompletionMode)
	fld.CheckImmutable("podFailurePolicy", s.PodFailurePolicy, was.PodFailurePolicy)
	fld.CheckImmutable("backoffLimitPerIndex", s.BackoffLimitPerIndex, was.BackoffLimitPerIndex)
	fld.CheckImmutable("managedBy", s.ManagedBy, was.ManagedBy)
	fld.CheckImmutable("successPolicy", s.SuccessPolicy, was.SuccessPolicy)
}

// moveScheduling copies the scheduling directives.
func moveScheduling(to, from *corev1.PodTemplateSpec) {
	to.Labels = from.Labels
	to.Annotations = from.Annotations
	to.Spec.NodeSelector = from.Spec.NodeSelector
	to.Spec.Tolerations = from.Spec.Tolerations
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

// jobWarnings returns the warnings of jobs and their templates at a path.
func jobWarnings(path string, s *batchv1.JobSpec) []string {
	if isIndexed(s) && s.Completions != nil && *s.Completions > manyCompletions && s.Parallelism != nil &&
		*s.Parallelism > parallelWarnedOf {
		return []string{
			path + ": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, " +
				"Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
		}
	}
	return nil
}

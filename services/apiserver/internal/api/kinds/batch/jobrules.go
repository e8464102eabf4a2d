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
	// maxIndexedPods is the maximum parallelism of an indexed job, and its maximum of failed indexes.
	maxIndexedPods = 100_000
	// maxWithManyCompletions is that maximum for a job that counts failures per index and has more
	// completions than manyCompletions.
	maxWithManyCompletions = 10_000
	manyCompletions        = 100_000
	// maxManagedBy is the maximum length of managedBy in bytes.
	maxManagedBy = 63
	// warnedParallelism is the parallelism above which a job with manyCompletions causes a warning.
	warnedParallelism = 10_000
)

// validateJob validates a job whose pods have been labeled. old is nil at creation.
func validateJob(fld validate.Field, rules *podspec.Rules, j, old *batchv1.Job) {
	var oldTemplate *corev1.PodTemplateSpec
	if old != nil {
		oldTemplate = &old.Spec.Template
	}
	validateGeneratedSelector(fld, j, oldTemplate)
	validateJobSpec(fld.Child("spec"), rules, &j.Spec, oldTemplate)
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
	requiredLabels := []string{oldControllerUID, oldJobName}
	if old == nil || hasLabels(old.Labels, batchv1.JobNameLabel, batchv1.ControllerUidLabel) {
		expected[batchv1.ControllerUidLabel], expected[batchv1.JobNameLabel] = uid, name
		requiredLabels = append(requiredLabels, batchv1.ControllerUidLabel, batchv1.JobNameLabel)
	}
	template := fld.Child("spec", "template", "metadata")
	for _, key := range requiredLabels {
		template.RequireLabel("labels", s.Template.Labels, key, expected[key])
	}
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !selector.Matches(expected) {
		fld.Child("spec").Invalid("selector", *s.Selector, "`selector` not auto-generated")
	}
}

// hasLabels reports whether there are labels with all of the keys.
func hasLabels(labels map[string]string, keys ...string) bool {
	for _, key := range keys {
		if _, ok := labels[key]; !ok {
			return false
		}
	}
	return true
}

// validateJobSpec validates the spec of a job. old is the stored pod template, or nil at creation.
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
		fld.CheckMaxBytes("managedBy", *s.ManagedBy, maxManagedBy)
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
	if exceeds(s.Parallelism, maxIndexedPods) {
		fld.Invalid("parallelism", *s.Parallelism,
			fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", maxIndexedPods))
	}
	if s.Completions != nil && exceeds(s.MaxFailedIndexes, *s.Completions) {
		fld.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, "must be less than or equal to completions")
	}
	if exceeds(s.MaxFailedIndexes, maxIndexedPods) {
		fld.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, fmt.Sprintf("must be less than or equal to %d", maxIndexedPods))
	}
	if s.BackoffLimitPerIndex == nil || !exceeds(s.Completions, manyCompletions) {
		return
	}
	if s.MaxFailedIndexes == nil {
		fld.Required("maxFailedIndexes", fmt.Sprintf("must be specified when completions is above %d", manyCompletions))
	}
	tooMany := fmt.Sprintf(
		"must be less than or equal to %d when completions are above %d and used with backoff limit per index",
		maxWithManyCompletions, manyCompletions)
	if exceeds(s.Parallelism, maxWithManyCompletions) {
		fld.Invalid("parallelism", *s.Parallelism, tooMany)
	}
	if exceeds(s.MaxFailedIndexes, maxWithManyCompletions) {
		fld.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, tooMany)
	}
}

// validateRestartPolicy rejects pods that always restart, because they never complete.
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
	completionsChanged := !validate.SemanticEqual(s.Completions, was.Completions)
	switch {
	case !isIndexed(s):
		fld.CheckImmutable("completions", s.Completions, was.Completions)
	case s.Completions != nil && completionsChanged && !validate.SemanticEqual(s.Completions, s.Parallelism):
		fld.Invalid("completions", s.Completions, "can only be modified in tandem with spec.parallelism")
	}
	fld.CheckImmutable("selector", s.Selector, was.Selector)
	template := was.Template.DeepCopy()
	if was.Suspend != nil && *was.Suspend && old.Status.StartTime == nil {
		copyScheduling(template, &s.Template)
	}
	fld.CheckImmutable("template", s.Template, *template)
	fld.CheckImmutable("completionMode", s.CompletionMode, was.CompletionMode)
	fld.CheckImmutable("podFailurePolicy", s.PodFailurePolicy, was.PodFailurePolicy)
	fld.CheckImmutable("backoffLimitPerIndex", s.BackoffLimitPerIndex, was.BackoffLimitPerIndex)
	fld.CheckImmutable("managedBy", s.ManagedBy, was.ManagedBy)
	fld.CheckImmutable("successPolicy", s.SuccessPolicy, was.SuccessPolicy)
}

// copyScheduling copies the scheduling directives of a pod template.
func copyScheduling(to, from *corev1.PodTemplateSpec) {
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
	hasMany := s.Completions != nil && *s.Completions > manyCompletions
	if isIndexed(s) && hasMany && s.Parallelism != nil && *s.Parallelism > warnedParallelism {
		return []string{
			path + ": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, " +
				"Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
		}
	}
	return nil
}

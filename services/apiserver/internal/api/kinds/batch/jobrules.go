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
	jobSpec := &j.Spec
	if jobSpec.ManualSelector != nil && *jobSpec.ManualSelector || jobSpec.Selector == nil {
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
		template.RequireLabel("labels", jobSpec.Template.Labels, key, expected[key])
	}
	if selector, err := metav1.LabelSelectorAsSelector(jobSpec.Selector); err == nil && !selector.Matches(expected) {
		fld.Child("spec").Invalid("selector", *jobSpec.Selector, "`selector` not auto-generated")
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
func validateJobSpec(fld validate.Field, rules *podspec.Rules, spec *batchv1.JobSpec, old *corev1.PodTemplateSpec) {
	validateJobParts(fld, rules, spec, old)
	fld.RequireSet("selector", spec.Selector != nil)
	fld.CheckSelector("selector", spec.Selector, false)
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		fld.Child("template", "metadata").Invalid("labels", spec.Template.Labels, "`selector` does not match template `labels`")
	}
}

// validateJobParts validates the fields that jobs and their templates share.
func validateJobParts(fld validate.Field, rules *podspec.Rules, jobSpec *batchv1.JobSpec, old *corev1.PodTemplateSpec) {
	validate.OptionalNonNegative(fld, "parallelism", jobSpec.Parallelism)
	validate.OptionalNonNegative(fld, "completions", jobSpec.Completions)
	validate.OptionalNonNegative(fld, "activeDeadlineSeconds", jobSpec.ActiveDeadlineSeconds)
	validate.OptionalNonNegative(fld, "backoffLimit", jobSpec.BackoffLimit)
	validate.OptionalNonNegative(fld, "ttlSecondsAfterFinished", jobSpec.TTLSecondsAfterFinished)
	validate.OptionalNonNegative(fld, "backoffLimitPerIndex", jobSpec.BackoffLimitPerIndex)
	validate.OptionalNonNegative(fld, "maxFailedIndexes", jobSpec.MaxFailedIndexes)
	if jobSpec.MaxFailedIndexes != nil && jobSpec.BackoffLimitPerIndex == nil {
		fld.Required("backoffLimitPerIndex", "when maxFailedIndexes is specified")
	}
	if jobSpec.ManagedBy != nil {
		fld.CheckDomainPath("managedBy", *jobSpec.ManagedBy)
		fld.CheckMaxBytes("managedBy", *jobSpec.ManagedBy, maxManagedBy)
	}
	validate.OptionalOneOf(fld, "completionMode", jobSpec.CompletionMode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
	validateIndexing(fld, jobSpec)
	if jobSpec.PodFailurePolicy != nil {
		validateFailurePolicy(fld.Child("podFailurePolicy"), jobSpec)
	}
	if jobSpec.SuccessPolicy != nil {
		validateSuccessPolicy(fld, jobSpec)
	}
	if p := jobSpec.PodReplacementPolicy; p != nil && jobSpec.PodFailurePolicy != nil {
		validate.OneOf(fld, "podReplacementPolicy", *p, batchv1.Failed)
	} else {
		validate.OptionalOneOf(fld, "podReplacementPolicy", p, batchv1.Failed, batchv1.TerminatingOrFailed)
	}
	rules.ValidateTemplate(fld.Child("template"), &jobSpec.Template, old)
	validateRestartPolicy(fld.Child("template", "spec"), jobSpec)
}

func isIndexed(s *batchv1.JobSpec) bool {
	return s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
}

// validateIndexing limits indexed jobs, and rejects their fields in other jobs.
func validateIndexing(fld validate.Field, jobSpec *batchv1.JobSpec) {
	exceeds := func(n *int32, maximum int32) bool { return n != nil && *n > maximum }
	if !isIndexed(jobSpec) {
		if jobSpec.CompletionMode != nil && *jobSpec.CompletionMode != batchv1.NonIndexedCompletion {
			return
		}
		const detail = "requires indexed completion mode"
		if jobSpec.BackoffLimitPerIndex != nil {
			fld.Invalid("backoffLimitPerIndex", *jobSpec.BackoffLimitPerIndex, detail)
		}
		if jobSpec.MaxFailedIndexes != nil {
			fld.Invalid("maxFailedIndexes", *jobSpec.MaxFailedIndexes, detail)
		}
		return
	}
	if jobSpec.Completions == nil {
		fld.Required("completions", "when completion mode is Indexed")
	}
	if exceeds(jobSpec.Parallelism, maxIndexedPods) {
		fld.Invalid("parallelism", *jobSpec.Parallelism,
			fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", maxIndexedPods))
	}
	if jobSpec.Completions != nil && exceeds(jobSpec.MaxFailedIndexes, *jobSpec.Completions) {
		fld.Invalid("maxFailedIndexes", *jobSpec.MaxFailedIndexes, "must be less than or equal to completions")
	}
	if exceeds(jobSpec.MaxFailedIndexes, maxIndexedPods) {
		fld.Invalid("maxFailedIndexes", *jobSpec.MaxFailedIndexes, fmt.Sprintf("must be less than or equal to %d", maxIndexedPods))
	}
	if jobSpec.BackoffLimitPerIndex == nil || !exceeds(jobSpec.Completions, manyCompletions) {
		return
	}
	if jobSpec.MaxFailedIndexes == nil {
		fld.Required("maxFailedIndexes", fmt.Sprintf("must be specified when completions is above %d", manyCompletions))
	}
	tooMany := fmt.Sprintf(
		"must be less than or equal to %d when completions are above %d and used with backoff limit per index",
		maxWithManyCompletions, manyCompletions)
	if exceeds(jobSpec.Parallelism, maxWithManyCompletions) {
		fld.Invalid("parallelism", *jobSpec.Parallelism, tooMany)
	}
	if exceeds(jobSpec.MaxFailedIndexes, maxWithManyCompletions) {
		fld.Invalid("maxFailedIndexes", *jobSpec.MaxFailedIndexes, tooMany)
	}
}

// validateRestartPolicy rejects pods that always restart, because they never complete.
func validateRestartPolicy(fld validate.Field, spec *batchv1.JobSpec) {
	switch policy := spec.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyAlways, "":
		fld.Required("restartPolicy", `valid values: "OnFailure", "Never"`)
	case corev1.RestartPolicyNever:
	case corev1.RestartPolicyOnFailure:
		if spec.PodFailurePolicy != nil {
			fld.Invalid("restartPolicy", policy, `only "Never" is supported when podFailurePolicy is specified`)
		}
	default:
		validate.OneOf(fld, "restartPolicy", policy, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
}

// validateJobChanges rejects changes of fields that existing pods depend on. A suspended job that
// has not started may change its scheduling directives (KEP-2926).
func validateJobChanges(fld validate.Field, j, old *batchv1.Job) {
	jobSpec, was := &j.Spec, &old.Spec
	completionsChanged := !validate.SemanticEqual(jobSpec.Completions, was.Completions)
	switch {
	case !isIndexed(jobSpec):
		fld.CheckImmutable("completions", jobSpec.Completions, was.Completions)
	case jobSpec.Completions != nil && completionsChanged && !validate.SemanticEqual(jobSpec.Completions, jobSpec.Parallelism):
		fld.Invalid("completions", jobSpec.Completions, "can only be modified in tandem with spec.parallelism")
	}
	fld.CheckImmutable("selector", jobSpec.Selector, was.Selector)
	template := was.Template.DeepCopy()
	if was.Suspend != nil && *was.Suspend && old.Status.StartTime == nil {
		copyScheduling(template, &jobSpec.Template)
	}
	fld.CheckImmutable("template", jobSpec.Template, *template)
	fld.CheckImmutable("completionMode", jobSpec.CompletionMode, was.CompletionMode)
	fld.CheckImmutable("podFailurePolicy", jobSpec.PodFailurePolicy, was.PodFailurePolicy)
	fld.CheckImmutable("backoffLimitPerIndex", jobSpec.BackoffLimitPerIndex, was.BackoffLimitPerIndex)
	fld.CheckImmutable("managedBy", jobSpec.ManagedBy, was.ManagedBy)
	fld.CheckImmutable("successPolicy", jobSpec.SuccessPolicy, was.SuccessPolicy)
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

package batch

import (
	"maps"
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry/declare"
)

// backoffLimit is the default number of retries of a job.
const backoffLimit = 6

// Names of these labels before they had a prefix. Both forms are set.
const (
	oldControllerUID = "controller-uid"
	oldJobName       = "job-name"
)

func defaultJob(j *batchv1.Job) {
	jobSpec := &j.Spec
	if jobSpec.Completions == nil && jobSpec.Parallelism == nil {
		declare.SetDefaultPtr(&jobSpec.Completions, 1)
	}
	declare.SetDefaultPtr(&jobSpec.Parallelism, 1)
	if jobSpec.BackoffLimitPerIndex != nil {
		declare.SetDefaultPtr(&jobSpec.BackoffLimit, math.MaxInt32)
	}
	declare.SetDefaultPtr(&jobSpec.BackoffLimit, backoffLimit)
	declare.SetDefaultPtr(&jobSpec.CompletionMode, batchv1.NonIndexedCompletion)
	declare.SetDefaultPtr(&jobSpec.Suspend, false)
	declare.SetDefaultPtr(&jobSpec.ManualSelector, false)
	if jobSpec.PodFailurePolicy != nil {
		declare.SetDefaultPtr(&jobSpec.PodReplacementPolicy, batchv1.Failed)
	}
	declare.SetDefaultPtr(&jobSpec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	// The map is shared on purpose: the labels that the creation adds to the pods also apply to a
	// job without labels of its own.
	if len(j.Labels) == 0 {
		j.Labels = jobSpec.Template.Labels
	}
	defaultJobParts(jobSpec)
}

// defaultJobParts sets the defaults that jobs and their templates share.
func defaultJobParts(spec *batchv1.JobSpec) {
	if spec.PodFailurePolicy != nil {
		for i := range spec.PodFailurePolicy.Rules {
			conditions := spec.PodFailurePolicy.Rules[i].OnPodConditions
			for j := range conditions {
				declare.SetDefault(&conditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	poddefaults.Template(&spec.Template)
}

// prepareJobCreate labels the pods with the uid of the job, which distinguishes it from earlier
// jobs of the same name, and selects them by that label, unless the client sets the selector.
func prepareJobCreate(j *batchv1.Job) {
	jobSpec := &j.Spec
	if jobSpec.ManualSelector != nil && *jobSpec.ManualSelector {
		return
	}
	if jobSpec.Template.Labels == nil {
		jobSpec.Template.Labels = map[string]string{}
	}
	setMissingLabel(jobSpec.Template.Labels, batchv1.JobNameLabel, j.Name)
	setMissingLabel(jobSpec.Template.Labels, oldJobName, j.Name)
	setMissingLabel(jobSpec.Template.Labels, batchv1.ControllerUidLabel, string(j.UID))
	setMissingLabel(jobSpec.Template.Labels, oldControllerUID, string(j.UID))

	declare.SetDefaultPtr(&jobSpec.Selector, metav1.LabelSelector{})
	if jobSpec.Selector.MatchLabels == nil {
		jobSpec.Selector.MatchLabels = map[string]string{}
	}
	setMissingLabel(jobSpec.Selector.MatchLabels, batchv1.ControllerUidLabel, string(j.UID))
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(jobSpec.Template.Labels)
	}
}

func setMissingLabel(labels map[string]string, key, value string) {
	if _, ok := labels[key]; !ok {
		labels[key] = value
	}
}

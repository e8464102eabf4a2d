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
	s := &j.Spec
	if s.Completions == nil && s.Parallelism == nil {
		declare.SetDefaultPtr(&s.Completions, 1)
	}
	declare.SetDefaultPtr(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		declare.SetDefaultPtr(&s.BackoffLimit, math.MaxInt32)
	}
	declare.SetDefaultPtr(&s.BackoffLimit, backoffLimit)
	declare.SetDefaultPtr(&s.CompletionMode, batchv1.NonIndexedCompletion)
	declare.SetDefaultPtr(&s.Suspend, false)
	declare.SetDefaultPtr(&s.ManualSelector, false)
	if s.PodFailurePolicy != nil {
		declare.SetDefaultPtr(&s.PodReplacementPolicy, batchv1.Failed)
	}
	declare.SetDefaultPtr(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	// The map is shared on purpose: the labels that the creation adds to the pods also apply to a
	// job without labels of its own.
	if len(j.Labels) == 0 {
		j.Labels = s.Template.Labels
	}
	defaultJobParts(s)
}

// defaultJobParts sets the defaults that jobs and their templates share.
func defaultJobParts(s *batchv1.JobSpec) {
	if s.PodFailurePolicy != nil {
		for i := range s.PodFailurePolicy.Rules {
			conditions := s.PodFailurePolicy.Rules[i].OnPodConditions
			for j := range conditions {
				declare.SetDefault(&conditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	poddefaults.Template(&s.Template)
}

// prepareJobCreate labels the pods with the uid of the job, which distinguishes it from earlier
// jobs of the same name, and selects them by that label, unless the client sets the selector.
func prepareJobCreate(j *batchv1.Job) {
	s := &j.Spec
	if s.ManualSelector != nil && *s.ManualSelector {
		return
	}
	if s.Template.Labels == nil {
		s.Template.Labels = map[string]string{}
	}
	setMissingLabel(s.Template.Labels, batchv1.JobNameLabel, j.Name)
	setMissingLabel(s.Template.Labels, oldJobName, j.Name)
	setMissingLabel(s.Template.Labels, batchv1.ControllerUidLabel, string(j.UID))
	setMissingLabel(s.Template.Labels, oldControllerUID, string(j.UID))

	declare.SetDefaultPtr(&s.Selector, metav1.LabelSelector{})
	if s.Selector.MatchLabels == nil {
		s.Selector.MatchLabels = map[string]string{}
	}
	setMissingLabel(s.Selector.MatchLabels, batchv1.ControllerUidLabel, string(j.UID))
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(s.Template.Labels)
	}
}

func setMissingLabel(labels map[string]string, key, value string) {
	if _, ok := labels[key]; !ok {
		labels[key] = value
	}
}

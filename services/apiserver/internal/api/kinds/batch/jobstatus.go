package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/registry/validate"
)

// jobPhase reports which conditions of a job's end are true. The controller first sets
// SuccessCriteriaMet or FailureTarget. When all pods have terminated, it sets Complete or Failed.
type jobPhase struct{ criteriaMet, complete, failureTarget, failed bool }

// phaseOf returns the phase that a status states.
func phaseOf(status *batchv1.JobStatus) jobPhase {
	return jobPhase{
		criteriaMet:   isConditionTrue(status, batchv1.JobSuccessCriteriaMet),
		complete:      isConditionTrue(status, batchv1.JobComplete),
		failureTarget: isConditionTrue(status, batchv1.JobFailureTarget),
		failed:        isConditionTrue(status, batchv1.JobFailed),
	}
}

func (p jobPhase) isFinished() bool { return p.complete || p.failed }

func isConditionTrue(s *batchv1.JobStatus, t batchv1.JobConditionType) bool {
	return hasCondition(s, t, corev1.ConditionTrue)
}

// hasCondition reports whether a condition exists and has the status.
func hasCondition(s *batchv1.JobStatus, t batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == t && c.Status == status {
			return true
		}
	}
	return false
}

// isResumed reports whether a change of the status resumes a suspended job. The controller sets a
// new start time then.
func isResumed(s, was *batchv1.JobStatus) bool {
	return isConditionTrue(was, batchv1.JobSuspended) && hasCondition(s, batchv1.JobSuspended, corev1.ConditionFalse)
}

// isCompleteWithoutStart reports whether a job can be complete although it never started: it is
// suspended and needs no completions.
func isCompleteWithoutStart(spec *batchv1.JobSpec) bool {
	return spec.Suspend != nil && *spec.Suspend && spec.Completions != nil && *spec.Completions == 0
}

// validateJobStatus enforces on any controller of jobs (KEP-4368) the invariants that readers of
// jobs rely on. Most rules apply only to changed fields, so that an older status may stay.
func validateJobStatus(fld validate.Field, j, old *batchv1.Job) {
	fld = fld.Child("status")
	status, was := &j.Status, &old.Status
	validateCounts(fld, status)
	validateEndOfJob(fld, j, was)
	validateIndexStatus(fld, j, was)
	now, before := phaseOf(status), phaseOf(was)
	if n := status.Terminating; n != nil && *n > 0 && now.isFinished() &&
		(before.isFinished() != now.isFinished() || !ptr.Equal(n, was.Terminating)) {
		fld.Invalid("terminating", *n, "terminating>0 is invalid for finished job")
	}
	if n := status.Ready; n != nil && *n > status.Active && (!ptr.Equal(n, was.Ready) || status.Active != was.Active) {
		fld.Invalid("ready", *n, "cannot set more ready pods than active")
	}
	if now.criteriaMet && now.failed {
		fld.InvalidOmitValue("conditions", "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	}
	if now.criteriaMet && now.failureTarget {
		fld.InvalidOmitValue("conditions", "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	}
	if j.Spec.SuccessPolicy != nil && !now.criteriaMet && now.complete {
		fld.InvalidOmitValue("conditions", "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	}
	validateJobStatusChanges(fld, j, old)
}

// validateCounts rejects negative counts, and pods that are listed twice.
func validateCounts(fld validate.Field, status *batchv1.JobStatus) {
	fld.CheckNonNegative("active", int64(status.Active))
	fld.CheckNonNegative("succeeded", int64(status.Succeeded))
	fld.CheckNonNegative("failed", int64(status.Failed))
	validate.OptionalNonNegative(fld, "ready", status.Ready)
	validate.OptionalNonNegative(fld, "terminating", status.Terminating)
	validate.Optional(
		fld,
		"uncountedTerminatedPods",
		status.UncountedTerminatedPods,
		func(fld validate.Field, pods *batchv1.UncountedTerminatedPods) {
			seen := validate.Set[types.UID]{}
			unique := func(fld validate.Field, uid *types.UID) {
				if *uid == "" {
					fld.Invalid("", *uid, "must not be empty")
					return
				}
				validate.Unique(fld, "", *uid, seen)
			}
			validate.Each(fld, "succeeded", pods.Succeeded, unique)
			validate.Each(fld, "failed", pods.Failed, unique)
		},
	)
}

// validateEndOfJob requires that the conditions, times and counts of a finished job agree.
func validateEndOfJob(fld validate.Field, j *batchv1.Job, was *batchv1.JobStatus) {
	jobStatus := &j.Status
	now, before := phaseOf(jobStatus), phaseOf(was)
	changed := struct{ complete, failed, finished, startTime, completionTime bool }{
		complete:       now.complete != before.complete,
		failed:         now.failed != before.failed,
		finished:       now.isFinished() != before.isFinished(),
		startTime:      !jobStatus.StartTime.Equal(was.StartTime),
		completionTime: !jobStatus.CompletionTime.Equal(was.CompletionTime),
	}

	// 1. Conditions and times of jobs in any phase.
	if now.complete && now.failed && (changed.complete || changed.failed) {
		fld.InvalidOmitValue("conditions", "cannot set Complete=True and Failed=true conditions")
	}
	if now.complete && now.failureTarget && (changed.complete || now.failureTarget != before.failureTarget) {
		fld.InvalidOmitValue("conditions", "cannot set Complete=True and FailureTarget=true conditions")
	}
	if changed.complete || changed.completionTime {
		if jobStatus.CompletionTime != nil && !now.complete {
			fld.Invalid("completionTime", jobStatus.CompletionTime, "cannot set completionTime when there is no Complete=True condition")
		}
		if jobStatus.CompletionTime == nil && now.complete {
			fld.Required("completionTime", "completionTime is required for Complete jobs")
		}
	}
	if (changed.startTime || changed.completionTime) && jobStatus.StartTime != nil && jobStatus.CompletionTime.Before(jobStatus.StartTime) {
		fld.Invalid("completionTime", jobStatus.CompletionTime, "completionTime cannot be set before startTime")
	}
	if now.failed && !now.failureTarget && (changed.failed || now.failureTarget != before.failureTarget) {
		fld.InvalidOmitValue("conditions", "cannot set Failed=True condition without the FailureTarget=true condition")
	}
	if now.complete && !now.criteriaMet && (changed.complete || now.criteriaMet != before.criteriaMet) {
		fld.InvalidOmitValue("conditions", "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	}

	// 2. Counts of finished jobs.
	if !now.isFinished() {
		return
	}
	if jobStatus.Active > 0 && (changed.finished || jobStatus.Active != was.Active) {
		fld.Invalid("active", jobStatus.Active, "active>0 is invalid for finished job")
	}
	if jobStatus.StartTime == nil && (changed.finished || changed.startTime) && !isCompleteWithoutStart(&j.Spec) {
		fld.Required("startTime", "startTime is required for finished job")
	}
	u := jobStatus.UncountedTerminatedPods
	if u != nil && len(u.Failed)+len(u.Succeeded) > 0 &&
		(changed.finished || !validate.SemanticEqual(u, was.UncountedTerminatedPods)) {
		fld.Invalid("uncountedTerminatedPods", *u, "uncountedTerminatedPods needs to be empty for finished job")
	}
}

// validateIndexStatus validates completed and failed indexes.
func validateIndexStatus(fld validate.Field, j *batchv1.Job, was *batchv1.JobStatus) {
	jobStatus, spec := &j.Status, &j.Spec
	completedChanged := jobStatus.CompletedIndexes != was.CompletedIndexes
	failedChanged := !ptr.Equal(jobStatus.FailedIndexes, was.FailedIndexes)
	if completedChanged && spec.Completions != nil {
		validateIndexes(fld, "completedIndexes", jobStatus.CompletedIndexes, *spec.Completions)
	}
	if failedChanged && jobStatus.FailedIndexes != nil && spec.Completions != nil && spec.BackoffLimitPerIndex != nil {
		validateIndexes(fld, "failedIndexes", *jobStatus.FailedIndexes, *spec.Completions)
	}
	if completedChanged && jobStatus.CompletedIndexes != "" && !isIndexed(spec) {
		fld.Invalid("completedIndexes", jobStatus.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if failedChanged && jobStatus.FailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		fld.Invalid("failedIndexes", *jobStatus.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if (completedChanged || failedChanged) && jobStatus.FailedIndexes != nil && spec.Completions != nil {
		if i, found := firstSharedIndex(jobStatus.CompletedIndexes, *jobStatus.FailedIndexes, *spec.Completions); found {
			fld.Invalid("failedIndexes", *jobStatus.FailedIndexes, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", i))
		}
	}
}

// validateJobStatusChanges rejects changes that revert a terminal state.
func validateJobStatusChanges(fld validate.Field, j, old *batchv1.Job) {
	jobStatus, was := &j.Status, &old.Status
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		if isConditionTrue(was, t) && !isConditionTrue(jobStatus, t) {
			fld.InvalidOmitValue("conditions", fmt.Sprintf("cannot disable the terminal %s=True condition", t))
		}
	}
	if jobStatus.Failed < was.Failed {
		fld.Invalid("failed", jobStatus.Failed, "cannot decrease the failed counter")
	}
	// An indexed job that is scaled down may lose succeeded pods.
	if jobStatus.Succeeded < was.Succeeded && !(isIndexed(&j.Spec) && ptr.Equal(j.Spec.Completions, j.Spec.Parallelism)) {
		fld.Invalid("succeeded", jobStatus.Succeeded, "cannot decrease the succeeded counter")
	}
	if jobStatus.CompletionTime != nil && was.CompletionTime != nil && !jobStatus.CompletionTime.Equal(was.CompletionTime) {
		fld.Invalid("completionTime", jobStatus.CompletionTime, "completionTime cannot be mutated")
	}
	isSuspended := j.Spec.Suspend != nil && *j.Spec.Suspend
	if was.StartTime != nil && !jobStatus.StartTime.Equal(was.StartTime) && !isSuspended && !isResumed(jobStatus, was) {
		fld.Required("startTime", "startTime cannot be removed for unsuspended job")
	}
	now, before := phaseOf(jobStatus), phaseOf(was)
	if before.criteriaMet && !now.criteriaMet {
		fld.InvalidOmitValue("conditions", "cannot disable the SuccessCriteriaMet=True condition")
	}
	if before.complete && !before.criteriaMet && now.criteriaMet {
		fld.InvalidOmitValue("conditions", "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	}
}

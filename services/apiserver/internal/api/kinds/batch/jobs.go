package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// jobs declares the namespaced kind Job.
func jobs(rules *podspec.Rules) *registry.Kind {
	pods := podspec.PodsOf[*batchv1.Job]{
		Template:   func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template },
		Path:       field.NewPath("spec", "template"),
		HostNames:  true,
		WarnAround: func(j *batchv1.Job) []string { return jobWarnings("spec", &j.Spec) },
	}
	return podspec.WithPodTemplate(rules, pods, declare.Kind[batchv1.Job, batchv1.JobList](&registry.Kind{
		Names:          registry.Names{Group: group, Version: version, Resource: "jobs", Kind: "Job", Categories: []string{"all"}, Namespaced: true},
		Parts:          declare.SpecStatusAccessors(func(j *batchv1.Job) (*batchv1.JobSpec, *batchv1.JobStatus) { return &j.Spec, &j.Status }),
		Default:        declare.Adapt(defaultJob),
		DefaultedRules: jobDefaultedRules,
		Create: registry.Create{
			Prepare:  declare.Adapt(prepareJobCreate),
			Validate: declare.AdaptValidation(func(fld validate.Field, j *batchv1.Job) { validateJob(fld, rules, j, nil) }),
		},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, j, old *batchv1.Job) {
				spec := fld.Child("spec")
				validateJob(fld, rules, j, old)
				validateJobSpec(spec, rules, &j.Spec, &old.Spec.Template)
				validateJobChanges(spec, j, old)
			}),
		},
		Delete: registry.Delete{
			Orphan: true,
			OrphanWarning: "child pods are preserved by default when jobs are deleted; " +
				"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
		},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{{Label: "status.successful", Path: "status.succeeded"}},
			UnknownLabel: func(_ schema.GroupVersionKind, label string) error {
				return fmt.Errorf("field label %q not supported for Job", label)
			},
			Columns: jobColumns(),
		},
		Subresources: []registry.Subresource{declare.ValidatedStatus("Job", validateJobStatus)},
	}))
}

func jobColumns() []registry.Column {
	containers := func(j *batchv1.Job) []corev1.Container { return j.Spec.Template.Spec.Containers }
	return []registry.Column{
		columns.Name(),
		columns.Text("Status", "Status of the job.", jobStatusText),
		columns.Text("Completions", columns.Doc(batchv1.JobStatus{}, "succeeded"), completionsText),
		columns.New(
			"Duration",
			columns.String,
			"",
			"Time required to complete the job.",
			0,
			func(j *batchv1.Job) any { return jobDuration(j) },
		),
		columns.Age(),
		columns.WideText("Containers", containersDesc, func(j *batchv1.Job) string { return columns.ContainerNames(containers(j)) }),
		columns.WideText("Images", imagesDesc, func(j *batchv1.Job) string { return columns.ContainerImages(containers(j)) }),
		columns.WideText("Selector", columns.Doc(batchv1.JobSpec{}, "selector"), func(j *batchv1.Job) string {
			return columns.Selector(j.Spec.Selector)
		}),
	}
}

func jobStatusText(j *batchv1.Job) string {
	is := func(t batchv1.JobConditionType) bool { return isConditionTrue(&j.Status, t) }
	switch {
	case is(batchv1.JobComplete):
		return "Complete"
	case is(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case is(batchv1.JobSuspended):
		return "Suspended"
	case is(batchv1.JobFailureTarget):
		return "FailureTarget"
	default:
		return "Running"
	}
}

// completionsText returns the succeeded and wanted numbers of pods. A job without a number of
// completions needs one success, whatever its parallelism.
func completionsText(j *batchv1.Job) string {
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case j.Spec.Parallelism != nil && *j.Spec.Parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *j.Spec.Parallelism)
	default:
		return fmt.Sprintf("%d/1", j.Status.Succeeded)
	}
}

// jobDuration returns the time until completion, or until now if the job is not complete.
func jobDuration(j *batchv1.Job) any {
	switch {
	case j.Status.StartTime == nil:
		return ""
	case j.Status.CompletionTime == nil:
		return columns.Since(*j.Status.StartTime)
	default:
		return duration.HumanDuration(j.Status.CompletionTime.Sub(j.Status.StartTime.Time))
	}
}

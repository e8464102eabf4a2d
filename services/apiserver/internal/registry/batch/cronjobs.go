package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

func cronJobs(rules *podspec.Rules) *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "cronjobs", Singular: "cronjob", Kind: "CronJob",
		ShortNames: []string{"cj"}, Categories: []string{"all"}, Namespaced: true,
		New:           declare.New[batchv1.CronJob],
		NewList:       declare.New[batchv1.CronJobList],
		Stored:        registry.Stored{Prefix: "cronjobs"},
		Default:       declare.Do(defaultCronJob),
		Generation:    true,
		PrepareCreate: declare.Do(func(c *batchv1.CronJob) { rules.DropTemplate(pods(c), nil) }),
		PrepareUpdate: declare.Change(func(c, old *batchv1.CronJob) { rules.DropTemplate(pods(c), pods(old)) }),
		Validate: declare.Get(func(c *batchv1.CronJob) field.ErrorList {
			return validate.Check(func(at validate.At) { cronJobRules(at.Child("spec"), rules, &c.Spec, nil) })
		}),
		ValidateUpdate: declare.GetChange(func(c, old *batchv1.CronJob) field.ErrorList {
			return validate.Check(func(at validate.At) { cronJobRules(at.Child("spec"), rules, &c.Spec, pods(old)) })
		}),
		Warnings: declare.Get(func(c *batchv1.CronJob) []string {
			return podspec.TemplateWarnings(field.NewPath("spec", "jobTemplate", "spec", "template"), pods(c))
		}),
		Columns:      cronJobColumns(),
		Subresources: []registry.Subresource{declare.Status("CronJob")},
	}
}

// How many finished jobs are kept.
const (
	successfulJobs = 3
	failedJobs     = 1
)

// defaultCronJob leaves the template of the jobs for their own defaults, but for
// the pods.
func defaultCronJob(c *batchv1.CronJob) {
	declare.Fill(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	declare.FillPtr(&c.Spec.Suspend, false)
	declare.FillPtr(&c.Spec.SuccessfulJobsHistoryLimit, successfulJobs)
	declare.FillPtr(&c.Spec.FailedJobsHistoryLimit, failedJobs)
	defaultJobParts(&c.Spec.JobTemplate.Spec)
}

// pods is the template of the pods of the jobs.
func pods(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template }

func cronJobRules(at validate.At, rules *podspec.Rules, s *batchv1.CronJobSpec, old *corev1.PodTemplateSpec) {
	at.Present("schedule", s.Schedule != "")
	validate.OptionalNonNegative(at, "startingDeadlineSeconds", s.StartingDeadlineSeconds)
	validate.RequiredOneOf(at, "concurrencyPolicy", s.ConcurrencyPolicy,
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
	job := at.Child("jobTemplate", "spec")
	jobPartRules(job, rules, &s.JobTemplate.Spec, old)
	if selector := s.JobTemplate.Spec.Selector; selector != nil {
		job.Invalid("selector", *selector, "`selector` will be auto-generated")
	}
	validate.OptionalNonNegative(at, "successfulJobsHistoryLimit", s.SuccessfulJobsHistoryLimit)
	validate.OptionalNonNegative(at, "failedJobsHistoryLimit", s.FailedJobsHistoryLimit)
}

func cronJobColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(batchv1.CronJobSpec{}, name) }
	stat := func(name string) string { return columns.Doc(batchv1.CronJobStatus{}, name) }
	containers := func(c *batchv1.CronJob) []corev1.Container { return c.Spec.JobTemplate.Spec.Template.Spec.Containers }
	return []registry.Column{
		columns.Name(),
		columns.Text("Schedule", spec("schedule"), func(c *batchv1.CronJob) string { return c.Spec.Schedule }),
		columns.Text("Timezone", spec("timeZone"), func(c *batchv1.CronJob) string {
			if c.Spec.TimeZone == nil {
				return columns.None
			}
			return *c.Spec.TimeZone
		}),
		// A text in a column that says it is boolean, as clients know it.
		columns.Of("Suspend", columns.Boolean, "", spec("suspend"), 0, func(c *batchv1.CronJob) any { return suspendText(c) }),
		columns.Int("Active", stat("active"), func(c *batchv1.CronJob) int64 { return int64(len(c.Status.Active)) }),
		columns.Of("Last Schedule", columns.String, "", stat("lastScheduleTime"), 0, func(c *batchv1.CronJob) any {
			if c.Status.LastScheduleTime == nil {
				return columns.None
			}
			return columns.Since(*c.Status.LastScheduleTime)
		}),
		columns.Age(),
		columns.WideText("Containers", containersDesc, func(c *batchv1.CronJob) string { return columns.ContainerNames(containers(c)) }),
		columns.WideText("Images", imagesDesc, func(c *batchv1.CronJob) string { return columns.ContainerImages(containers(c)) }),
		columns.WideText("Selector", columns.Doc(batchv1.JobSpec{}, "selector"), func(c *batchv1.CronJob) string {
			return columns.Selector(c.Spec.JobTemplate.Spec.Selector)
		}),
	}
}

func suspendText(c *batchv1.CronJob) string {
	switch {
	case c.Spec.Suspend == nil:
		return columns.Unset
	case *c.Spec.Suspend:
		return "True"
	default:
		return "False"
	}
}

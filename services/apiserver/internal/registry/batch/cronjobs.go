package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func cronJobs() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "cronjobs", Singular: "cronjob", Kind: "CronJob",
		ShortNames: []string{"cj"}, Categories: []string{"all"}, Namespaced: true,
		New:          declare.New[batchv1.CronJob],
		NewList:      declare.New[batchv1.CronJobList],
		Stored:       registry.Stored{Prefix: "cronjobs"},
		Default:      declare.Do(defaultCronJob),
		Generation:   true,
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

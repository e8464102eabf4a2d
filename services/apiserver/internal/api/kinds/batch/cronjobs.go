package batch

import (
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // for hosts without a time zone database

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// cronJobs declares the namespaced kind CronJob.
func cronJobs(rules *podspec.Rules) *registry.Kind {
	pods := podspec.PodsOf[*batchv1.CronJob]{
		Template:  podTemplateOf,
		Path:      field.NewPath("spec", "jobTemplate", "spec", "template"),
		HostNames: true,
		WarnAround: func(c *batchv1.CronJob) []string {
			return jobWarnings("spec.jobTemplate.spec", &c.Spec.JobTemplate.Spec)
		},
	}
	return podspec.WithPodTemplate(rules, pods, declare.Kind[batchv1.CronJob, batchv1.CronJobList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "cronjobs", Kind: "CronJob",
			ShortNames: []string{"cj"}, Categories: []string{"all"}, Namespaced: true,
		},
		Parts:   declare.SpecStatusAccessors(func(c *batchv1.CronJob) (*batchv1.CronJobSpec, *batchv1.CronJobStatus) { return &c.Spec, &c.Status }),
		Default: declare.Adapt(defaultCronJob),
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, c *batchv1.CronJob) {
				validateCronJob(fld.Child("spec"), rules, &c.Spec, nil)
				if len(c.Name) > maxCronJobName {
					fld.Child("metadata").Invalid("name", c.Name, "must be no more than 52 characters")
				}
			}),
		},
		Update: registry.Update{
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *batchv1.CronJob) {
				validateCronJob(fld.Child("spec"), rules, &c.Spec, &old.Spec)
			}),
			Warnings: declare.AdaptUpdateResult(zoneWarnings),
		},
		Presentation: registry.Presentation{Columns: cronJobColumns()},
		Subresources: []registry.Subresource{declare.WithValidationOrder(declare.Status("CronJob"), registry.UpdateRules)},
	}))
}

// maxCronJobName is the maximum length of a name. It leaves room for the time suffix in the names of
// the jobs.
const maxCronJobName = 52

// Default numbers of finished jobs in the history.
const (
	defaultSuccessfulJobs = 3
	defaultFailedJobs     = 1
)

// defaultCronJob sets the defaults of a cron job and of the pod template. Other defaults of the job
// template are set when a job is created.
func defaultCronJob(cronJob *batchv1.CronJob) {
	declare.SetDefault(&cronJob.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	declare.SetDefaultPtr(&cronJob.Spec.Suspend, false)
	declare.SetDefaultPtr(&cronJob.Spec.SuccessfulJobsHistoryLimit, defaultSuccessfulJobs)
	declare.SetDefaultPtr(&cronJob.Spec.FailedJobsHistoryLimit, defaultFailedJobs)
	defaultJobParts(&cronJob.Spec.JobTemplate.Spec)
}

func podTemplateOf(c *batchv1.CronJob) *corev1.PodTemplateSpec {
	return &c.Spec.JobTemplate.Spec.Template
}

// validateCronJob validates the spec of a cron job. old is nil at creation.
func validateCronJob(fld validate.Field, rules *podspec.Rules, cronJobSpec, old *batchv1.CronJobSpec) {
	if cronJobSpec.Schedule == "" {
		fld.Required("schedule", "")
	} else {
		validateSchedule(fld, cronJobSpec, old)
	}
	validate.OptionalNonNegative(fld, "startingDeadlineSeconds", cronJobSpec.StartingDeadlineSeconds)
	if cronJobSpec.TimeZone != nil && (old == nil || !ptr.Equal(cronJobSpec.TimeZone, old.TimeZone)) {
		fld.CheckText("timeZone", *cronJobSpec.TimeZone, timeZoneErrors)
	}
	validate.RequiredOneOf(fld, "concurrencyPolicy", cronJobSpec.ConcurrencyPolicy,
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
	var oldTemplate *corev1.PodTemplateSpec
	if old != nil {
		oldTemplate = &old.JobTemplate.Spec.Template
	}
	jobSpec := &cronJobSpec.JobTemplate.Spec
	job := fld.Child("jobTemplate", "spec")
	validateJobParts(job, rules, jobSpec, oldTemplate)
	if jobSpec.Selector != nil {
		job.Invalid("selector", *jobSpec.Selector, "`selector` will be auto-generated")
	}
	if manual := jobSpec.ManualSelector; manual != nil && *manual {
		job.Add(field.NotSupported(job.Child("manualSelector").FieldPath(), *manual, []string{"nil", "false"}))
	}
	validate.OptionalNonNegative(fld, "successfulJobsHistoryLimit", cronJobSpec.SuccessfulJobsHistoryLimit)
	validate.OptionalNonNegative(fld, "failedJobsHistoryLimit", cronJobSpec.FailedJobsHistoryLimit)
}

// validateSchedule requires a schedule with the five fields of cron, or a named one such as @daily. A
// time zone belongs in its own field, but a stored schedule with a time zone may keep it.
func validateSchedule(fld validate.Field, spec, old *batchv1.CronJobSpec) {
	fld.CheckText("schedule", spec.Schedule, scheduleErrors)
	switch hasZone := strings.Contains(spec.Schedule, "TZ"); {
	case !hasZone:
	case old == nil || !strings.Contains(old.Schedule, "TZ"):
		fld.Invalid("schedule", spec.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	case spec.TimeZone != nil:
		fld.Invalid("schedule", spec.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
	}
}

func scheduleErrors(text string) []string {
	// The parser cannot handle a time zone without a schedule.
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		if !strings.Contains(text, " ") {
			return []string{"expected a schedule after the time zone"}
		}
	}
	if _, err := cron.ParseStandard(text); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// zonePart matches a path element in the name of a time zone.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

// timeZoneErrors returns the errors of a time zone's name.
func timeZoneErrors(name string) (msgs []string) {
	if name == "" {
		return []string{"timeZone must be nil or non-empty string"}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) {
			return []string{"unknown time zone " + name}
		}
	}
	if strings.EqualFold(name, "Local") {
		msgs = append(msgs, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(name); err != nil {
		msgs = append(msgs, err.Error())
	}
	return msgs
}

// zoneWarnings returns the warnings of an update that leaves a time zone in the schedule.
func zoneWarnings(c, _ *batchv1.CronJob) []string {
	if !strings.Contains(c.Spec.Schedule, "TZ") {
		return nil
	}
	return []string{
		"cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, " +
			"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
	}
}

func cronJobColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(batchv1.CronJobSpec{}, name) }
	stat := func(name string) string { return columns.Doc(batchv1.CronJobStatus{}, name) }
	containers := func(cronJob *batchv1.CronJob) []corev1.Container {
		return cronJob.Spec.JobTemplate.Spec.Template.Spec.Containers
	}
	return []registry.Column{
		columns.Name(),
		columns.Text("Schedule", spec("schedule"), func(cronJob *batchv1.CronJob) string { return cronJob.Spec.Schedule }),
		columns.Text("Timezone", spec("timeZone"), func(cronJob *batchv1.CronJob) string {
			if cronJob.Spec.TimeZone == nil {
				return columns.None
			}
			return *cronJob.Spec.TimeZone
		}),
		// A string in a column of type boolean, as in Kubernetes.
		columns.New("Suspend", columns.Boolean, "", spec("suspend"), 0, func(cronJob *batchv1.CronJob) any { return suspendText(cronJob) }),
		columns.Int("Active", stat("active"), func(cronJob *batchv1.CronJob) int64 { return int64(len(cronJob.Status.Active)) }),
		columns.New("Last Schedule", columns.String, "", stat("lastScheduleTime"), 0, func(cronJob *batchv1.CronJob) any {
			if cronJob.Status.LastScheduleTime == nil {
				return columns.None
			}
			return columns.Since(*cronJob.Status.LastScheduleTime)
		}),
		columns.Age(),
		columns.WideText(
			"Containers",
			containersDesc,
			func(cronJob *batchv1.CronJob) string { return columns.ContainerNames(containers(cronJob)) },
		),
		columns.WideText("Images", imagesDesc, func(cronJob *batchv1.CronJob) string { return columns.ContainerImages(containers(cronJob)) }),
		columns.WideText("Selector", columns.Doc(batchv1.JobSpec{}, "selector"), func(cronJob *batchv1.CronJob) string {
			return columns.Selector(cronJob.Spec.JobTemplate.Spec.Selector)
		}),
	}
}

func suspendText(cronJob *batchv1.CronJob) string {
	switch {
	case cronJob.Spec.Suspend == nil:
		return columns.Unset
	case *cronJob.Spec.Suspend:
		return "True"
	default:
		return "False"
	}
}

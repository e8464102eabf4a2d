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
func defaultCronJob(c *batchv1.CronJob) {
	declare.SetDefault(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	declare.SetDefaultPtr(&c.Spec.Suspend, false)
	declare.SetDefaultPtr(&c.Spec.SuccessfulJobsHistoryLimit, defaultSuccessfulJobs)
	declare.SetDefaultPtr(&c.Spec.FailedJobsHistoryLimit, defaultFailedJobs)
	defaultJobParts(&c.Spec.JobTemplate.Spec)
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
func validateSchedule(fld validate.Field, s, old *batchv1.CronJobSpec) {
	fld.CheckText("schedule", s.Schedule, scheduleErrors)
	switch hasZone := strings.Contains(s.Schedule, "TZ"); {
	case !hasZone:
	case old == nil || !strings.Contains(old.Schedule, "TZ"):
		fld.Invalid("schedule", s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	case s.TimeZone != nil:
		fld.Invalid("schedule", s.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
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
		// A string in a column of type boolean, as in Kubernetes.
		columns.New("Suspend", columns.Boolean, "", spec("suspend"), 0, func(c *batchv1.CronJob) any { return suspendText(c) }),
		columns.Int("Active", stat("active"), func(c *batchv1.CronJob) int64 { return int64(len(c.Status.Active)) }),
		columns.New("Last Schedule", columns.String, "", stat("lastScheduleTime"), 0, func(c *batchv1.CronJob) any {
			if c.Status.LastScheduleTime == nil {
				return columns.None
			}
			return columns.Since(*c.Status.LastScheduleTime)
		}),
		columns.Age(),
		columns.WideText(
			"Containers",
			containersDesc,
			func(c *batchv1.CronJob) string { return columns.ContainerNames(containers(c)) },
		),
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

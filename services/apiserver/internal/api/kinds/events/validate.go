package events

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/api/kinds/core"
	rules "binnacle/services/apiserver/internal/registry/validate"
)

// minSeries is the minimum number of events in a series.
const minSeries = 2

// validate validates a new event: the rules of both groups, then those of this group, which does
// not allow fields of the old style. Errors have field names of the core group.
func validate(served *eventsv1.Event) field.ErrorList {
	e := toCore(served)
	errs := append(core.ValidateEvent(e, "reportingController"), validateSeries(e)...)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type)))
	}
	unset := func(name string, is bool) {
		if !is {
			errs = append(errs, field.Invalid(field.NewPath(name), "", "needs to be unset"))
		}
	}
	unset("firstTimestamp", e.FirstTimestamp.IsZero())
	unset("lastTimestamp", e.LastTimestamp.IsZero())
	unset("count", e.Count == 0)
	unset("source", e.Source == corev1.EventSource{})
	return errs
}

// validateUpdate rejects changes of anything except metadata and the series.
func validateUpdate(served, live *eventsv1.Event) field.ErrorList {
	e, old := toCore(served), toCore(live)
	errs := core.ValidateEvent(e, "reportingController")
	if !semantic.Equal(e.Series, old.Series) {
		errs = append(errs, validateSeries(e)...)
	}
	fixed := func(name string, is, was any) {
		if !semantic.Equal(is, was) {
			errs = append(errs, field.Invalid(field.NewPath(name), is, validation.FieldImmutableErrorMsg))
		}
	}
	fixedStruct := func(name string, is, was any) {
		if !semantic.Equal(is, was) {
			errs = append(errs, field.Invalid(field.NewPath(name), rules.InternalValue(is), validation.FieldImmutableErrorMsg))
		}
	}
	fixedStruct("involvedObject", e.InvolvedObject, old.InvolvedObject)
	fixed("reason", e.Reason, old.Reason)
	fixed("message", e.Message, old.Message)
	fixedStruct("source", e.Source, old.Source)
	fixed("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	fixed("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	fixed("count", e.Count, old.Count)
	// Kubernetes reports this field twice.
	fixed("reason", e.Reason, old.Reason)
	fixed("type", e.Type, old.Type)
	fixed("eventTime", wireTime(e), wireTime(old))
	fixed("action", e.Action, old.Action)
	if e.Related == nil {
		fixed("related", e.Related, old.Related)
	} else {
		fixedStruct("related", e.Related, old.Related)
	}
	fixed("reportingController", e.ReportingController, old.ReportingController)
	fixed("reportingInstance", e.ReportingInstance, old.ReportingInstance)
	return errs
}

// wireTime returns the event's time with the precision of the JSON form.
func wireTime(e *corev1.Event) metav1.MicroTime {
	return metav1.NewMicroTime(e.EventTime.Truncate(time.Microsecond).UTC())
}

func validateSeries(e *corev1.Event) field.ErrorList {
	if e.Series == nil {
		return nil
	}
	var errs field.ErrorList
	if e.Series.Count < minSeries {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", fmt.Sprintf("should be at least %d", minSeries)))
	}
	if e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

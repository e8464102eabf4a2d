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
	event := toCore(served)
	errs := append(core.ValidateEvent(event, "reportingController"), validateSeries(event)...)
	if event.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if event.Type != corev1.EventTypeNormal && event.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", event.Type)))
	}
	unset := func(name string, is bool) {
		if !is {
			errs = append(errs, field.Invalid(field.NewPath(name), "", "needs to be unset"))
		}
	}
	unset("firstTimestamp", event.FirstTimestamp.IsZero())
	unset("lastTimestamp", event.LastTimestamp.IsZero())
	unset("count", event.Count == 0)
	unset("source", event.Source == corev1.EventSource{})
	return errs
}

// validateUpdate rejects changes of anything except metadata and the series.
func validateUpdate(served, live *eventsv1.Event) field.ErrorList {
	event, old := toCore(served), toCore(live)
	errs := core.ValidateEvent(event, "reportingController")
	if !semantic.Equal(event.Series, old.Series) {
		errs = append(errs, validateSeries(event)...)
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
	fixedStruct("involvedObject", event.InvolvedObject, old.InvolvedObject)
	fixed("reason", event.Reason, old.Reason)
	fixed("message", event.Message, old.Message)
	fixedStruct("source", event.Source, old.Source)
	fixed("firstTimestamp", event.FirstTimestamp, old.FirstTimestamp)
	fixed("lastTimestamp", event.LastTimestamp, old.LastTimestamp)
	fixed("count", event.Count, old.Count)
	// Kubernetes reports this field twice.
	fixed("reason", event.Reason, old.Reason)
	fixed("type", event.Type, old.Type)
	fixed("eventTime", wireTime(event), wireTime(old))
	fixed("action", event.Action, old.Action)
	if event.Related == nil {
		fixed("related", event.Related, old.Related)
	} else {
		fixedStruct("related", event.Related, old.Related)
	}
	fixed("reportingController", event.ReportingController, old.ReportingController)
	fixed("reportingInstance", event.ReportingInstance, old.ReportingInstance)
	return errs
}

// wireTime returns the event's time with the precision of the JSON form.
func wireTime(e *corev1.Event) metav1.MicroTime {
	return metav1.NewMicroTime(e.EventTime.Truncate(time.Microsecond).UTC())
}

func validateSeries(event *corev1.Event) field.ErrorList {
	if event.Series == nil {
		return nil
	}
	var errs field.ErrorList
	if event.Series.Count < minSeries {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", fmt.Sprintf("should be at least %d", minSeries)))
	}
	if event.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

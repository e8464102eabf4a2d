package core

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

// events declares the namespaced kind Event.
func events() *registry.Kind {
	return declare.Kind[corev1.Event, corev1.EventList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "events", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true,
			ValidateName: meta.PathSegment, AllowUnqualifiedFinalizers: true,
		},
		Stored: registry.StorageForm{HasTTL: true},
		Create: registry.Create{Validate: declare.AdaptResult(validateCoreEvent), RulesFirst: true},
		Update: registry.Update{
			Order:               registry.Order{registry.UpdateRules},
			AllowCreateOnUpdate: true,
			Validate:            declare.AdaptUpdateResult(func(e, _ *corev1.Event) field.ErrorList { return validateCoreEvent(e) }),
		},
		Delete: registry.Delete{NoDependents: true},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{
				{Label: "involvedObject.kind"},
				{Label: "involvedObject.namespace"},
				{Label: "involvedObject.name"},
				{Label: "involvedObject.uid"},
				{Label: "involvedObject.apiVersion"},
				{Label: "involvedObject.resourceVersion"},
				{Label: "involvedObject.fieldPath"},
				{Label: "reason"},
				{Label: "reportingComponent"},
				{Label: "source", Value: declare.AdaptResult(EventSource)},
				{Label: "type"},
			},
			Columns: EventColumns(func(e *corev1.Event) *corev1.Event { return e }),
		},
	})
}

// EventSource returns the value of the field "source": the component that reported the event. An
// event of the old style names it in source. An event of the new style has an eventTime and names
// the component in reportingComponent.
func EventSource(e *corev1.Event) string {
	return cmp.Or(e.Source.Component, e.ReportingController)
}

// EventColumns returns the columns of events. view returns an event of either group as a core/v1
// Event.
func EventColumns[T registry.Object](view func(T) *corev1.Event) []registry.Column {
	doc := func(name string) string { return columns.Doc(corev1.Event{}, name) }
	column := func(name, desc string, priority int32, cell func(*corev1.Event) any) registry.Column {
		return columns.New(name, columns.String, "", desc, priority, func(o T) any { return cell(view(o)) })
	}
	return []registry.Column{
		column("Last Seen", doc("lastTimestamp"), 0, func(e *corev1.Event) any { return lastSeen(e) }),
		column("Type", doc("type"), 0, func(e *corev1.Event) any { return e.Type }),
		column("Reason", doc("reason"), 0, func(e *corev1.Event) any { return e.Reason }),
		column("Object", doc("involvedObject"), 0, func(e *corev1.Event) any { return eventObjectText(e) }),
		column("Subobject", columns.Doc(corev1.ObjectReference{}, "fieldPath"), 1,
			func(e *corev1.Event) any { return e.InvolvedObject.FieldPath }),
		column("Source", doc("source"), 1, func(e *corev1.Event) any { return eventReporterText(e) }),
		column("Message", doc("message"), 0, func(e *corev1.Event) any { return strings.TrimSpace(e.Message) }),
		column("First Seen", doc("firstTimestamp"), 1, func(e *corev1.Event) any { return firstSeen(e) }),
		column("Count", doc("count"), 1, func(e *corev1.Event) any { return eventCount(e) }),
		columns.WideName(),
	}
}

// firstSeen returns the time of the first occurrence.
func firstSeen(event *corev1.Event) registry.Age {
	if event.FirstTimestamp.IsZero() {
		return columns.SinceMicro(event.EventTime)
	}
	return columns.Since(event.FirstTimestamp)
}

// lastSeen returns the time of the last occurrence.
func lastSeen(event *corev1.Event) registry.Age {
	switch {
	case event.Series != nil:
		return columns.SinceMicro(event.Series.LastObservedTime)
	case event.LastTimestamp.IsZero():
		return firstSeen(event)
	default:
		return columns.Since(event.LastTimestamp)
	}
}

// eventObjectText returns "kind/name" of the involved object.
func eventObjectText(event *corev1.Event) string {
	kind := strings.ToLower(event.InvolvedObject.Kind)
	if event.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + event.InvolvedObject.Name
}

// eventReporterText returns the reporting component and its instance or host.
func eventReporterText(event *corev1.Event) string {
	instance := cmp.Or(event.Source.Host, event.ReportingInstance)
	if instance == "" {
		return EventSource(event)
	}
	return EventSource(event) + ", " + instance
}

// eventCount returns the number of occurrences, at least 1. An event of the new style has no count
// until it is a series.
func eventCount(event *corev1.Event) int64 {
	switch {
	case event.Series != nil:
		return int64(event.Series.Count)
	case event.Count == 0:
		return 1
	default:
		return int64(event.Count)
	}
}

// Maximum sizes of an event's fields in bytes.
const (
	maxReportingInstance = 128
	maxAction            = 128
	maxReason            = 128
	maxNote              = 1024
)

func validateCoreEvent(e *corev1.Event) field.ErrorList {
	return ValidateEvent(e, "reportingComponent")
}

// ValidateEvent applies the rules for events of both groups. Only an event of the new style must be
// complete. reporter is the group's name for the reporting component.
func ValidateEvent(event *corev1.Event, reporter string) field.ErrorList {
	errs := validateEventNamespace(event)
	if !event.EventTime.IsZero() {
		errs = append(errs, validateNewEvent(event, reporter)...)
	}
	for _, msg := range validation.IsDNS1123Subdomain(event.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("namespace"), event.Namespace, msg))
	}
	return errs
}

// validateEventNamespace checks the namespace of an event, as Kubernetes does:
//
//   - An event of the old style must be in the namespace of the object that it is about. If the
//     object is cluster-scoped, the event must be in default or have no namespace.
//   - An event of the new style may be in any namespace if the object has a namespace. If the object
//     is cluster-scoped, the event must be in default or in kube-system.
func validateEventNamespace(event *corev1.Event) field.ErrorList {
	objectNamespace := event.InvolvedObject.Namespace
	var isAllowed bool
	switch {
	case event.EventTime.IsZero() && objectNamespace == "":
		isAllowed = event.Namespace == metav1.NamespaceNone || event.Namespace == api.DefaultNamespace
	case event.EventTime.IsZero():
		isAllowed = event.Namespace == objectNamespace
	default:
		isAllowed = objectNamespace != "" || event.Namespace == api.DefaultNamespace || event.Namespace == api.SystemNamespace
	}
	if isAllowed {
		return nil
	}
	path := field.NewPath("involvedObject", "namespace")
	return field.ErrorList{field.Invalid(path, objectNamespace, "does not match event.namespace")}
}

// validateNewEvent requires the fields of an event of the new style. reporter is the name of the field
// for the reporting component.
func validateNewEvent(event *corev1.Event, reporter string) field.ErrorList {
	var errs field.ErrorList
	require := func(name, value string) {
		if value == "" {
			errs = append(errs, field.Required(field.NewPath(name), ""))
		}
	}
	limit := func(name, value string, maximum int) {
		if len(value) > maximum {
			errs = append(errs, field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %d characters", maximum)))
		}
	}
	require(reporter, event.ReportingController)
	for _, msg := range validation.IsQualifiedName(event.ReportingController) {
		errs = append(errs, field.Invalid(field.NewPath(reporter), event.ReportingController, msg))
	}
	require("reportingInstance", event.ReportingInstance)
	limit("reportingInstance", event.ReportingInstance, maxReportingInstance)
	require("action", event.Action)
	limit("action", event.Action, maxAction)
	require("reason", event.Reason)
	limit("reason", event.Reason, maxReason)
	limit("message", event.Message, maxNote)
	return errs
}

package events

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
)

// toCore returns the stored form, which shares memory with event.
func toCore(event *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta:          event.ObjectMeta,
		InvolvedObject:      event.Regarding,
		Reason:              event.Reason,
		Message:             event.Note,
		Source:              event.DeprecatedSource,
		FirstTimestamp:      event.DeprecatedFirstTimestamp,
		LastTimestamp:       event.DeprecatedLastTimestamp,
		Count:               event.DeprecatedCount,
		Type:                event.Type,
		EventTime:           event.EventTime,
		Action:              event.Action,
		Related:             event.Related,
		ReportingController: event.ReportingController,
		ReportingInstance:   event.ReportingInstance,
	}
	if s := event.Series; s != nil {
		out.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	return out
}

// fromCore is the inverse of toCore.
func fromCore(event *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta:               event.ObjectMeta,
		Regarding:                event.InvolvedObject,
		Reason:                   event.Reason,
		Note:                     event.Message,
		DeprecatedSource:         event.Source,
		DeprecatedFirstTimestamp: event.FirstTimestamp,
		DeprecatedLastTimestamp:  event.LastTimestamp,
		DeprecatedCount:          event.Count,
		Type:                     event.Type,
		EventTime:                event.EventTime,
		Action:                   event.Action,
		Related:                  event.Related,
		ReportingController:      event.ReportingController,
		ReportingInstance:        event.ReportingInstance,
	}
	if s := event.Series; s != nil {
		out.Series = &eventsv1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	return out
}

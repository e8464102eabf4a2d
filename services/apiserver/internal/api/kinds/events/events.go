package events

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"binnacle/services/apiserver/internal/api/kinds/core"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// events declares the namespaced kind Event.
func events() *registry.Kind {
	return declare.Kind[eventsv1.Event, eventsv1.EventList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "events", Kind: "Event",
			ShortNames: []string{"ev"}, Namespaced: true,
		},
		Stored: registry.StorageForm{
			Prefix: "events", HasTTL: true,
			Version:    corev1.SchemeGroupVersion,
			New:        declare.New[corev1.Event],
			ToStored:   func(served registry.Object) (registry.Object, error) { return toCore(served.(*eventsv1.Event)), nil },
			FromStored: func(stored registry.Object) (registry.Object, error) { return fromCore(stored.(*corev1.Event)), nil },
		},
		Create: registry.Create{Validate: declare.AdaptResult(validate)},
		Update: registry.Update{
			AllowCreateOnUpdate: true,
			Validate:            declare.AdaptUpdateResult(validateUpdate),
		},
		Delete: registry.Delete{NoDependents: true},
		Presentation: registry.Presentation{
			// The labels are those of the core group, which apply to events of both groups. This
			// group's names are aliases.
			Selectable: []registry.SelectableField{
				{Label: "involvedObject.kind", Reserved: true, Aliases: []string{"regarding.kind"}},
				{Label: "involvedObject.namespace", Reserved: true, Aliases: []string{"regarding.namespace"}},
				{Label: "involvedObject.name", Reserved: true, Aliases: []string{"regarding.name"}},
				{Label: "involvedObject.uid", Reserved: true, Aliases: []string{"regarding.uid"}},
				{Label: "involvedObject.apiVersion", Reserved: true, Aliases: []string{"regarding.apiVersion"}},
				{Label: "involvedObject.resourceVersion", Reserved: true, Aliases: []string{"regarding.resourceVersion"}},
				{Label: "involvedObject.fieldPath", Reserved: true, Aliases: []string{"regarding.fieldPath"}},
				{Label: "reason"},
				{Label: "reportingComponent", Reserved: true, Aliases: []string{"reportingController"}},
				{Label: "type"},
			},
			Columns: core.EventColumns(toCore),
		},
	})
}

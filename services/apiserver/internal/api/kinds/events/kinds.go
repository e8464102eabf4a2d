// Package events declares the kind of the group events.k8s.io, v1: the Event in its new form. The
// store holds events of both groups in the form of the core group. The package has no state. Kinds
// returns new values for the catalog of built-in kinds.
package events

import (
	eventsv1 "k8s.io/api/events/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = eventsv1.GroupName
	version = "v1"
)

// Kinds returns the kinds of the group.
func Kinds() []*registry.Kind { return []*registry.Kind{events()} }

package watchcache

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selection specifies which objects of a resource are selected. The zero value selects all.
type Selection struct {
	// Namespace and Name apply if they are not empty.
	Namespace, Name string
	// Labels and Fields apply if they are not nil. Fields may use metadata.name, metadata.namespace
	// and the fields of Attributes.
	Labels labels.Selector
	Fields fields.Selector
	// Readable excludes unreadable objects: lists omit them, and watchers keep their last readable
	// version. Otherwise such objects are selected by namespace and name alone.
	Readable bool
	// Before requests the previous version with each Modified event.
	Before bool
	// Pause, if set, yields to other work. It is called after each lookedAtOnce objects, selected
	// or not. False ends the iteration.
	Pause func() bool
}

// lookedAtOnce is how many objects are inspected, or changes undone, between two calls of Pause:
// some tenths of a millisecond.
const lookedAtOnce = 1024

// indexed returns the position of an indexed field that the selection fixes, and the value.
func (s *Selection) indexed(index []string) (int, string, bool) {
	if s.Fields == nil {
		return 0, "", false
	}
	for i, field := range index {
		if v, ok := s.Fields.RequiresExactMatch(field); ok {
			return i, v, true
		}
	}
	return 0, "", false
}

// scope returns the narrowest scope that contains all selected objects.
func (s *Selection) scope(index []string) scope {
	switch {
	case s.Name != "" && s.Namespace != "":
		return scope{kind: scopeObject, a: s.Namespace, b: s.Name}
	case s.Name != "":
		return scope{kind: scopeName, a: s.Name}
	}
	if i, v, ok := s.indexed(index); ok {
		return scope{kind: scopeField, field: i, a: v}
	}
	if s.Namespace != "" {
		return scope{kind: scopeNamespace, a: s.Namespace}
	}
	return scope{}
}

// Matches reports whether an entry is selected.
func (s *Selection) Matches(e *Entry) bool {
	if e.damage != nil {
		return s.matcher().matches(e)
	}
	if s.Namespace != "" && e.Namespace() != s.Namespace || s.Name != "" && e.Name() != s.Name {
		return false
	}
	if s.Fields != nil && !s.Fields.Matches((*fieldView)(e)) {
		return false
	}
	return s.Labels == nil || s.Labels.Matches(e.Labels())
}

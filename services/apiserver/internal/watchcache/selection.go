package watchcache

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selection says which objects of a resource are wanted. The zero value wants
// all.
type Selection struct {
	// Namespace and Name select when they are not empty.
	Namespace, Name string
	// Labels and Fields select when they are not nil. Fields may name
	// metadata.name, metadata.namespace and what Attributes give.
	Labels labels.Selector
	Fields fields.Selector
	// Readable leaves out what cannot be read: lists do not have it, and watchers are
	// told of its last version that could be read. Else such objects are selected by
	// namespace and name alone.
	Readable bool
	// Before asks for the previous version with each Modified event.
	Before bool
	// Pause, if set, lets others work: it is called each time that lookedAtOnce objects have
	// been looked at, selected or not. False ends it.
	Pause func() bool
}

// lookedAtOnce is how many objects are looked at, or changes undone, before others may work:
// some tenths of a millisecond.
const lookedAtOnce = 1024

// indexed returns the position of an indexed field that the selection fixes,
// and its value.
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

// scope is the narrowest scope that holds everything selected.
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

// Matches tells whether an entry is selected.
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

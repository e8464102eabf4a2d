package reflector

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Store is a Sink that keeps a value for each object. It is safe for concurrent use.
type Store[V any] struct {
	value   func(metav1.Object) V
	changed func(before, after *V)

	mu     sync.RWMutex // leaf lock
	values map[types.NamespacedName]V

	listed map[types.NamespacedName]V // used by the goroutine of the reflector only
}

// NewStore returns an empty store. value returns what to keep of an object, and must not retain the
// object itself unless it keeps all of it. changed, which may be nil, is called after each change:
// before is nil for a new object, after is nil for a removed one. A complete list calls it for
// every object.
func NewStore[V any](value func(metav1.Object) V, changed func(before, after *V)) *Store[V] {
	if changed == nil {
		changed = func(_, _ *V) {}
	}
	return &Store[V]{value: value, changed: changed}
}

// Get returns the value of an object, and false if there is none.
func (s *Store[V]) Get(namespace, name string) (V, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.values[types.NamespacedName{Namespace: namespace, Name: name}]
	return v, ok
}

// All returns the values in no order.
func (s *Store[V]) All() []V {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.values))
}

// StartList implements Sink.
func (s *Store[V]) StartList() { s.listed = map[types.NamespacedName]V{} }

// AddListed implements Sink.
func (s *Store[V]) AddListed(o metav1.Object) { s.listed[nameOf(o)] = s.value(o) }

// EndList implements Sink.
func (s *Store[V]) EndList(string) {
	s.mu.Lock()
	previous := s.values
	s.values = s.listed
	s.mu.Unlock()
	current := s.listed // not changed concurrently: all changes are made by this goroutine
	s.listed = nil
	for key, v := range current {
		s.changed(lookUp(previous, key), &v)
	}
	for key, v := range previous {
		if lookUp(current, key) == nil {
			s.changed(&v, nil)
		}
	}
}

// Set implements Sink.
func (s *Store[V]) Set(o metav1.Object) {
	key, after := nameOf(o), s.value(o)
	s.mu.Lock()
	before := lookUp(s.values, key)
	s.values[key] = after
	s.mu.Unlock()
	s.changed(before, &after)
}

// Remove implements Sink.
func (s *Store[V]) Remove(o metav1.Object) {
	key := nameOf(o)
	s.mu.Lock()
	before := lookUp(s.values, key)
	delete(s.values, key)
	s.mu.Unlock()
	if before != nil {
		s.changed(before, nil)
	}
}

// Advance implements Sink.
func (s *Store[V]) Advance(string) {}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// lookUp returns a value of a map, or nil.
func lookUp[V any](values map[types.NamespacedName]V, key types.NamespacedName) *V {
	if v, ok := values[key]; ok {
		return &v
	}
	return nil
}

package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"sync"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/openapi/typefacts"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// shared is a value that is built on first use, once for all callers that wait for it, and then
// kept. A failed build is returned to these callers and not kept.
type shared[T any] struct {
	// slots limits the number of concurrent builds, which hold no seats. It is nil for values that
	// only wait for other limited builds.
	slots chan struct{}

	mu      sync.Mutex // guards the fields below; leaf lock
	built   *T
	pending *pendingBuild[T]
}

// pendingBuild is a build that callers wait for.
type pendingBuild[T any] struct {
	stop    context.CancelFunc
	waiting int
	// started states that the build has started. It then continues without callers, so that a later
	// caller finds its result.
	started bool

	done  chan struct{}
	value T // valid with err once done is closed
	err   error
}

// get returns the result of work. It returns an error if ctx ends or if too many requests wait. The
// context of work belongs to no request, and ends when no caller waits any more.
func (s *shared[T]) get(ctx context.Context, work func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	if s.built != nil {
		defer s.mu.Unlock()
		return *s.built, nil
	}
	m := s.pending
	if m == nil {
		within, stop := context.WithCancel(request.Detach(ctx))
		m = &pendingBuild[T]{stop: stop, done: make(chan struct{})}
		s.pending = m
		go s.run(within, m, work)
	}
	m.waiting++
	s.mu.Unlock()
	defer s.leave(m)
	err := request.Wait(ctx, status.ManyWait(), func(ctx context.Context) error {
		select {
		case <-m.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		var none T
		return none, err
	}
	return m.value, m.err
}

// leave ends the wait of one caller. A build that has not started is canceled when its last caller
// leaves.
func (s *shared[T]) leave(m *pendingBuild[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.waiting--
	if m.waiting > 0 || m.started {
		return
	}
	m.stop()
	if s.pending == m {
		s.pending = nil
	}
}

// run builds the value after it has acquired a slot.
func (s *shared[T]) run(ctx context.Context, m *pendingBuild[T], work func(context.Context) (T, error)) {
	defer m.stop()
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			runtime.Gosched() // lets short requests run between consecutive builds
		case <-ctx.Done():
		}
		if !s.begin(m) {
			return
		}
	}
	value, err := runProtected(ctx, work)
	m.value = value
	m.err = err
	s.mu.Lock()
	if err == nil {
		s.built = &value // a copy, because m references the first request
	}
	if s.pending == m {
		s.pending = nil
	}
	s.mu.Unlock()
	close(m.done)
}

// begin marks the build as started. It returns false if no caller waits any more.
func (s *shared[T]) begin(m *pendingBuild[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.started = m.waiting > 0
	return m.started
}

// runProtected runs work and converts a panic into an error, because no request handler would
// recover it.
func runProtected[T any](ctx context.Context, work func(context.Context) (T, error)) (_ T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return work(ctx)
}

// value returns the schema of a field's type.
func (m *models) value(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return m.ref(t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		items := m.element(t.Elem())
		return *spec.ArrayProperty(&items)
	case reflect.Map:
		items := m.element(t.Elem())
		return *spec.MapProperty(&items)
	case reflect.Bool:
		return *spec.BooleanProperty()
	case reflect.String:
		s := *spec.StringProperty()
		for _, v := range m.enum(t) {
			s.Enum = append(s.Enum, v.Text)
		}
		return s
	case reflect.Int64:
		return *spec.Int64Property()
	case reflect.Float32, reflect.Float64:
		return *spec.Float64Property()
	case reflect.Interface:
		return spec.Schema{}
	default:
		return *spec.Int32Property()
	}
}

// element returns the schema of the elements of a list or map.
func (m *models) element(t reflect.Type) spec.Schema {
	s := m.value(t)
	if m.v3 && m.facts != nil {
		s.Default = zero(t, false)
	}
	return m.wrapped(s)
}

// enum returns the values of a string type, or nil if any value is allowed.
func (m *models) enum(t reflect.Type) []typefacts.Value {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if m.facts == nil || !m.enums || t.Kind() != reflect.String {
		return nil
	}
	return m.facts.Enum(fullName(t))
}

// zero returns the JSON value of an unset field, or nil if it is omitted or null.
func zero(t reflect.Type, omitted bool) any {
	if t.Kind() == reflect.Pointer || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		if t.NumField() == 1 && t.Field(0).Anonymous {
			return zero(t.Field(0).Type, omitted)
		}
		return map[string]any{}
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Interface:
		return nil
	}
	if omitted {
		return nil
	}
	return reflect.Zero(t).Interface()
}

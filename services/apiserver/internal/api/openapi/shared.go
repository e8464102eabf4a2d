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
	build := s.pending
	if build == nil {
		buildCtx, stop := context.WithCancel(request.Detach(ctx))
		build = &pendingBuild[T]{stop: stop, done: make(chan struct{})}
		s.pending = build
		go s.run(buildCtx, build, work)
	}
	build.waiting++
	s.mu.Unlock()
	defer s.stopWaiting(build)
	err := request.Wait(ctx, status.ManyWait(), func(ctx context.Context) error {
		select {
		case <-build.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return build.value, build.err
}

// stopWaiting ends the wait of one caller. A build that has not started is canceled when its last
// caller leaves.
func (s *shared[T]) stopWaiting(build *pendingBuild[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	build.waiting--
	if build.waiting > 0 || build.started {
		return
	}
	build.stop()
	if s.pending == build {
		s.pending = nil
	}
}

// run builds the value after it has acquired a slot.
func (s *shared[T]) run(ctx context.Context, build *pendingBuild[T], work func(context.Context) (T, error)) {
	defer build.stop()
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			runtime.Gosched() // lets short requests run between consecutive builds
		case <-ctx.Done():
		}
		if !s.begin(build) {
			return
		}
	}
	value, err := runProtected(ctx, work)
	build.value = value
	build.err = err
	s.mu.Lock()
	if err == nil {
		s.built = &value // a copy, because m references the first request
	}
	if s.pending == build {
		s.pending = nil
	}
	s.mu.Unlock()
	close(build.done)
}

// begin marks the build as started. It returns false if no caller waits any more.
func (s *shared[T]) begin(build *pendingBuild[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	build.started = build.waiting > 0
	return build.started
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
func (build *models) value(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return build.ref(t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		items := build.element(t.Elem())
		return *spec.ArrayProperty(&items)
	case reflect.Map:
		items := build.element(t.Elem())
		return *spec.MapProperty(&items)
	case reflect.Bool:
		return *spec.BooleanProperty()
	case reflect.String:
		s := *spec.StringProperty()
		for _, v := range build.enum(t) {
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
func (build *models) element(t reflect.Type) spec.Schema {
	s := build.value(t)
	if build.v3 && build.facts != nil {
		s.Default = zero(t, false)
	}
	return build.wrapped(s)
}

// enum returns the values of a string type, or nil if any value is allowed.
func (build *models) enum(t reflect.Type) []typefacts.Value {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if build.facts == nil || !build.enums || t.Kind() != reflect.String {
		return nil
	}
	return build.facts.Enum(fullName(t))
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

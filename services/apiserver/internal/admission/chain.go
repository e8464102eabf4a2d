package admission

import (
	"context"
	"time"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mutator may change the object. An error rejects the request.
type Mutator interface {
	Admit(ctx context.Context, r *Request) error
}

// Validator may reject the request.
type Validator interface {
	Validate(ctx context.Context, r *Request) error
}

// Reserver reserves something for a write, such as a part of a quota. An error rejects the request.
// A nil Reservation means that nothing was reserved.
type Reserver interface {
	Reserve(ctx context.Context, r *Request) (Reservation, error)
}

// Reservation is a reservation for a write. One of its methods is called, once, when the outcome of
// the write is known.
type Reservation interface {
	Commit(ctx context.Context)   // the object was written
	Rollback(ctx context.Context) // the object was not and will not be written
}

// ExternalCaller is a plugin that calls services outside of the server.
type ExternalCaller interface {
	// CallsExternal reports whether the plugin may call a service for such a request. Only the
	// operation and the resource of the request are known yet.
	CallsExternal(ctx context.Context, r *Request) bool
}

// Plugin is a named member of the chain. It is a Mutator, a Validator, a Reserver, or several of
// these.
type Plugin struct {
	Name   string
	Plugin any
}

// Chain calls its plugins in order. The first rejection ends a phase.
type Chain struct {
	mutators        []member[Mutator]
	validators      []member[Validator]
	reservers       []member[Reserver]
	externalCallers []ExternalCaller
	metrics         *Metrics
}

// member is a plugin of the chain with its name.
type member[T any] struct {
	name   string
	plugin T
}

// NewChain returns a chain. Metrics may be nil.
func NewChain(m *Metrics, plugins ...Plugin) *Chain {
	c := &Chain{metrics: m}
	for _, p := range plugins {
		if plugin, ok := p.Plugin.(Mutator); ok {
			c.mutators = append(c.mutators, member[Mutator]{p.Name, plugin})
		}
		if plugin, ok := p.Plugin.(Validator); ok {
			c.validators = append(c.validators, member[Validator]{p.Name, plugin})
		}
		if plugin, ok := p.Plugin.(Reserver); ok {
			c.reservers = append(c.reservers, member[Reserver]{p.Name, plugin})
		}
		if plugin, ok := p.Plugin.(ExternalCaller); ok {
			c.externalCallers = append(c.externalCallers, plugin)
		}
	}
	return c
}

// CallsExternal reports whether a plugin may call a service outside of the server for such a
// request. Such a call should happen only once per request; see ExternalCaller.
func (c *Chain) CallsExternal(ctx context.Context, r *Request) bool {
	for _, caller := range c.externalCallers {
		if caller.CallsExternal(ctx, r) {
			return true
		}
	}
	return false
}

// Mutate runs the mutating phase, and runs it again if a plugin called RequestReinvocation.
func (c *Chain) Mutate(ctx context.Context, r *Request) error {
	defer r.recordAnnotations(ctx)
	ctx, span := tracing.Start(ctx, "Mutating admission", nil)
	defer span.End()
	r.reinvoke = false
	r.reinvoked = false
	if err := callEach(ctx, c, r, admit, c.mutators, Mutator.Admit); err != nil || !r.reinvoke {
		return err
	}
	r.reinvoked = true
	return callEach(ctx, c, r, admit, c.mutators, Mutator.Admit)
}

// Validate runs the validating phase.
func (c *Chain) Validate(ctx context.Context, r *Request) error {
	defer r.recordAnnotations(ctx)
	ctx, span := tracing.Start(ctx, "Validating admission", nil)
	defer span.End()
	return callEach(ctx, c, r, validate, c.validators, Validator.Validate)
}

// callEach calls members until one rejects the request.
func callEach[T any](ctx context.Context, c *Chain, r *Request, step string, members []member[T], call func(T, context.Context, *Request) error) error {
	if c.metrics == nil {
		for _, m := range members {
			if err := call(m.plugin, ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
	start := time.Now()
	last := start
	for _, m := range members {
		err := call(m.plugin, ctx, r)
		now := time.Now()
		c.metrics.plugin(m.name, r.Operation, step, err != nil, now.Sub(last))
		last = now
		if err != nil {
			c.metrics.step(r.Operation, step, true, now.Sub(start))
			return err
		}
	}
	c.metrics.step(r.Operation, step, false, last.Sub(start))
	return nil
}

// Reserve calls the Reservers, after mutation and validation. If one rejects the request, it rolls
// back all reservations.
func (c *Chain) Reserve(ctx context.Context, r *Request) (Reservation, error) {
	var all Reservations
	for _, m := range c.reservers {
		start := time.Now()
		reservation, err := m.plugin.Reserve(ctx, r)
		if c.metrics != nil { // Kubernetes reserves quota in the validating phase
			c.metrics.plugin(m.name, r.Operation, validate, err != nil, time.Since(start))
		}
		if err != nil {
			all.Rollback(ctx)
			return nil, err
		}
		if reservation != nil {
			all = append(all, reservation)
		}
	}
	return all, nil
}

// Reservations is a list of reservations that are committed or rolled back together, the last one
// first.
type Reservations []Reservation

// Commit implements Reservation.
func (c Reservations) Commit(ctx context.Context) {
	for i := len(c) - 1; i >= 0; i-- {
		c[i].Commit(ctx)
	}
}

// Rollback implements Reservation.
func (c Reservations) Rollback(ctx context.Context) {
	for i := len(c) - 1; i >= 0; i-- {
		c[i].Rollback(ctx)
	}
}

// Source provides the objects of a kind that configures a plugin, such as webhook configurations.
type Source struct {
	Store *watchcache.Store
	// Decode decodes an entry.
	Decode func(*objects.Entry) (metav1.Object, error)
	// WaitForWrites blocks until the store contains all writes that this server has acknowledged.
	WaitForWrites func(context.Context) error
}

// SourceOf returns the source of the objects of a kind. An unreadable object keeps its last
// readable state.
func SourceOf(k lister.CachedResource) Source {
	return Source{Store: k.Store, WaitForWrites: k.WaitForWrites, Decode: lister.LastReadable(k.Coder)}
}

package admission

import (
	"context"
	"time"

	"binnacle/libs/tracing"
)

// Mutator is a plugin that may change the object. An error rejects the request.
type Mutator interface {
	Admit(ctx context.Context, r *Request) error
}

// Validator is a plugin that checks the object as it will be stored. An error rejects the request.
type Validator interface {
	Validate(ctx context.Context, r *Request) error
}

// Reserver is a plugin that reserves something for a write, such as a part of a quota. An error
// rejects the request. A nil Reservation means that nothing was reserved.
type Reserver interface {
	Reserve(ctx context.Context, r *Request) (Reservation, error)
}

// Reservation holds a part of a quota for a write that has no outcome yet. When the outcome is
// known, the writer calls exactly one of the methods, once.
type Reservation interface {
	// Commit makes the reservation permanent, because the object was written.
	Commit(ctx context.Context)
	// Rollback releases the reservation, because the object was not written and will not be.
	Rollback(ctx context.Context)
}

// ExternalCaller is a plugin that calls services outside of the server.
type ExternalCaller interface {
	// CallsExternal reports whether the plugin may call a service for r. The objects of r are still
	// nil, so the operation and the resource decide.
	CallsExternal(ctx context.Context, r *Request) bool
}

// Plugin is an admission plugin and its name. The field Plugin implements one or more of Mutator,
// Validator, Reserver and ExternalCaller.
type Plugin struct {
	Name   string
	Plugin any
}

// Chain calls its plugins phase by phase. Within a phase, plugins run in the order in which they
// were passed to NewChain, and the first rejection ends the phase. A Chain is safe for concurrent
// use.
type Chain struct {
	mutators        []namedPlugin[Mutator]
	validators      []namedPlugin[Validator]
	reservers       []namedPlugin[Reserver]
	externalCallers []ExternalCaller
	metrics         *Metrics
}

// namedPlugin is a plugin as the interface T of one phase, with its name for metrics.
type namedPlugin[T any] struct {
	name   string
	plugin T
}

// NewChain returns a chain of plugins. If metrics is nil, the chain records no metrics.
func NewChain(metrics *Metrics, plugins ...Plugin) *Chain {
	chain := &Chain{metrics: metrics}
	for _, p := range plugins {
		if plugin, ok := p.Plugin.(Mutator); ok {
			chain.mutators = append(chain.mutators, namedPlugin[Mutator]{name: p.Name, plugin: plugin})
		}
		if plugin, ok := p.Plugin.(Validator); ok {
			chain.validators = append(chain.validators, namedPlugin[Validator]{name: p.Name, plugin: plugin})
		}
		if plugin, ok := p.Plugin.(Reserver); ok {
			chain.reservers = append(chain.reservers, namedPlugin[Reserver]{name: p.Name, plugin: plugin})
		}
		if plugin, ok := p.Plugin.(ExternalCaller); ok {
			chain.externalCallers = append(chain.externalCallers, plugin)
		}
	}
	return chain
}

// CallsExternal reports whether any plugin may call a service outside of the server for r. Writers
// then read the current object from the store before they call the plugins, so that the service
// does not see an outdated one. The objects of r may be nil.
func (c *Chain) CallsExternal(ctx context.Context, r *Request) bool {
	for _, caller := range c.externalCallers {
		if caller.CallsExternal(ctx, r) {
			return true
		}
	}
	return false
}

// Mutate runs the mutating phase. If a plugin calls RequestReinvocation, Mutate runs the whole
// phase a second time, but not more often.
func (c *Chain) Mutate(ctx context.Context, r *Request) error {
	defer r.recordAnnotations(ctx)
	ctx, span := tracing.Start(ctx, "Mutating admission", nil)
	defer span.End()
	r.reinvoke = false
	r.reinvoked = false
	if err := callPlugins(ctx, c, r, admitPhase, c.mutators, Mutator.Admit); err != nil || !r.reinvoke {
		return err
	}
	r.reinvoked = true
	return callPlugins(ctx, c, r, admitPhase, c.mutators, Mutator.Admit)
}

// Validate runs the validating phase.
func (c *Chain) Validate(ctx context.Context, r *Request) error {
	defer r.recordAnnotations(ctx)
	ctx, span := tracing.Start(ctx, "Validating admission", nil)
	defer span.End()
	return callPlugins(ctx, c, r, validatePhase, c.validators, Validator.Validate)
}

// callPlugins calls the plugins of one phase in order until one rejects the request. phase is the
// value of the metric label type.
func callPlugins[T any](
	ctx context.Context,
	chain *Chain,
	req *Request,
	phase string,
	plugins []namedPlugin[T],
	call func(T, context.Context, *Request) error,
) error {
	phaseStart := time.Now()
	pluginStart := phaseStart
	for _, p := range plugins {
		err := call(p.plugin, ctx, req)
		pluginEnd := time.Now()
		chain.metrics.observePlugin(p.name, req.Operation, phase, err != nil, pluginEnd.Sub(pluginStart))
		pluginStart = pluginEnd // one clock reading per plugin
		if err != nil {
			chain.metrics.observePhase(req.Operation, phase, true, pluginEnd.Sub(phaseStart))
			return err
		}
	}
	chain.metrics.observePhase(req.Operation, phase, false, pluginStart.Sub(phaseStart))
	return nil
}

// Reserve calls the Reservers. The caller has run Mutate and Validate before. If a Reserver rejects
// the request, Reserve rolls back the reservations of the earlier ones.
func (c *Chain) Reserve(ctx context.Context, r *Request) (Reservation, error) {
	var reservations Reservations
	for _, p := range c.reservers {
		start := time.Now()
		reservation, err := p.plugin.Reserve(ctx, r)
		// Kubernetes reserves quota in the validating phase, so the metric has that label.
		c.metrics.observePlugin(p.name, r.Operation, validatePhase, err != nil, time.Since(start))
		if err != nil {
			reservations.Rollback(ctx)
			return nil, err
		}
		if reservation != nil {
			reservations = append(reservations, reservation)
		}
	}
	return reservations, nil
}

// Reservations combines reservations into one. Commit and Rollback go through the list from the
// last reservation to the first.
type Reservations []Reservation

// Commit implements Reservation.
func (r Reservations) Commit(ctx context.Context) {
	for i := len(r) - 1; i >= 0; i-- {
		r[i].Commit(ctx)
	}
}

// Rollback implements Reservation.
func (r Reservations) Rollback(ctx context.Context) {
	for i := len(r) - 1; i >= 0; i-- {
		r[i].Rollback(ctx)
	}
}

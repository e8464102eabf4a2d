package flowcontrol

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// Period is the time between two adjustments of the levels' limits.
const Period = 10 * time.Second

// queueWaitShare limits the wait of a request in a queue: the time until its deadline is divided by
// it.
const queueWaitShare = 4

// Options configure a Controller.
type Options struct {
	// Seats is the number of seats of the whole server.
	Seats int
	// LoadConfig, if set, loads the configuration and passes it to SetConfig. Every request calls
	// it until SetConfig has been called.
	LoadConfig func(context.Context)
	// IsExempt, if set, reports whether a request is exempt regardless of the schemas.
	IsExempt func(*request.User, *requestinfo.Info) bool
	// MaxWait is the maximum wait of a request without a deadline.
	MaxWait time.Duration
	Metrics *Metrics
	Now     func() time.Time
}

// Controller admits requests. Its methods may be called concurrently.
type Controller struct {
	Options
	seed  maphash.Seed
	state atomic.Pointer[classifier]
	// running is set while Run runs.
	running atomic.Bool

	mu     sync.Mutex // serializes changes of state; lock order: before level.mu
	levels map[string]*level
}

// classifier is the configuration that classifies requests.
type classifier struct {
	config *Config
	loaded bool // by SetConfig
	levels map[string]*level
}

// boundSchema is a flow schema with its priority level.
type boundSchema struct {
	*compiledSchema
	level *level
	*schemaMetrics
}

// New returns a controller with the mandatory schemas and levels.
func New(o Options) *Controller {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Controller{Options: o, seed: maphash.MakeSeed(), levels: map[string]*level{}}
	c.setConfig(Compile(nil, nil), false)
	return c
}

// Configured reports whether the controller has a configuration other than the initial one.
func (c *Controller) Configured() bool { return c.state.Load().loaded }

// Running reports whether Run adjusts the limits of levels.
func (c *Controller) Running() bool { return c.running.Load() }

// SetConfig replaces the configuration for later requests. It removes the metrics of schemas that
// no longer exist or that have another level.
func (c *Controller) SetConfig(config *Config) {
	c.setConfig(config, true)
	c.Metrics.keepBindings(config.allBindings())
}

// setConfig replaces the configuration. loaded is false for the initial one.
func (c *Controller) setConfig(config *Config, loaded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &classifier{config: config, loaded: loaded}
	if s := c.state.Load(); s != nil && s.config.levelSpecs == config.levelSpecs {
		next.levels = s.levels
	} else {
		next.levels = c.configureLevels(config.levelSpecs.byName)
	}
	c.state.Store(next)
}

// configureLevels applies level specs. A removed level stays until its requests have ended. Until
// then, its shares still count when the seats of the server are divided. The caller holds mu.
func (c *Controller) configureLevels(desired map[string]*levelSpec) map[string]*level {
	now := c.Now()
	specs := maps.Clone(desired)
	for name := range desired {
		if c.levels[name] == nil {
			c.levels[name] = &level{name: name, metrics: c.Metrics.newLevelMetrics(name, c.Now)}
		}
	}
	for name, l := range c.levels {
		if specs[name] != nil {
			continue
		}
		l.mu.Lock()
		l.quiescing = true
		removable := l.isIdle()
		specs[name] = l.spec
		l.mu.Unlock()
		if removable {
			c.removeLevel(name)
			delete(specs, name)
		}
	}
	limits := seatLimits(specs, c.Seats)
	out := make(map[string]*level, len(desired))
	for name, spec := range desired {
		out[name] = c.levels[name]
		out[name].applySpec(spec, limits[name], now)
	}
	return out
}

// removeLevel removes a level and its metrics. The caller holds mu.
func (c *Controller) removeLevel(name string) {
	delete(c.levels, name)
	c.Metrics.removeLevel(name)
}

// Width is the estimated cost of a request.
type Width struct {
	// Seats is the number of seats while the request runs, at least 1.
	Seats int
	// Final is the number of seats that stay occupied for AdditionalLatency when the request has
	// ended. They stand for work that the request causes, such as watch events.
	Final             int
	AdditionalLatency time.Duration
}

// maxSeats returns the larger number of seats: while the request runs, or after its end.
func (w Width) maxSeats() int { return max(w.Seats, w.Final) }

// estimatedWork returns the work in seat-seconds, with estimatedDuration as the duration.
func (w Width) estimatedWork() float64 {
	return float64(w.Seats)*estimatedDuration.Seconds() + float64(w.Final)*w.AdditionalLatency.Seconds()
}

// noQueue is the queue index of requests that were not queued.
const noQueue = -1

// Request is a request that runs, waits or is suspended.
type Request struct {
	schema         *boundSchema
	user           *request.User
	info           *requestinfo.Info
	flow           string // the value of the schema's flow distinguisher
	fairKey        string // the key of fair queueing: the principal if flow is a user, else flow
	flowHash       uint64 // of schema and fairKey; set when the request is queued
	width          Width
	work           float64
	arrived        time.Time
	started        time.Time     // zero while the request waits
	ranFor         time.Duration // total time with seats, without the current period
	suspended      bool
	queue          int
	virtualArrival float64
	admitted       chan struct{}
	ended          atomic.Bool
	watch          bool
	mutating       bool

	next, previous *Request // in the list of the level
}

// Rejection is the error of a rejected request.
type Rejection struct {
	Reason     string
	RetryAfter int // seconds
}

// Error implements error.
func (r *Rejection) Error() string { return "too many requests: " + r.Reason }

// Values of Rejection.Reason.
const (
	reasonConcurrency = "concurrency-limit"
	reasonQueueFull   = "queue-full"
	reasonTimeout     = "time-out"
	reasonCancelled   = "cancelled"
)

// Class is the classification of a request.
type Class struct{ SchemaUID, LevelUID, Level string }

// Acquire classifies a request and waits until it may run. width returns the width of the request,
// given the maximum number of seats of one request in its level. The error wraps a *Rejection. If
// it is nil, the caller must call End.
func (c *Controller) Acquire(
	ctx context.Context,
	user *request.User,
	info *requestinfo.Info,
	width func(maxWidth int) Width,
) (*Request, Class, error) {
	req := &Request{user: user, info: info, watch: info.Verb == "watch", mutating: info.IsWrite(), queue: noQueue}
	assigned := c.classify(ctx, req)
	class := Class{SchemaUID: req.schema.uid, Level: assigned.name}
	assigned.mu.Lock()
	class.LevelUID = assigned.spec.uid
	kind := assigned.spec.kind
	maxWidth := max(1, min(maxRequestSeats, int(float64(assigned.nominal)*maxSeatsFraction)))
	assigned.mu.Unlock()
	req.width = (Width{Seats: 1})
	if kind != kindExempt && width != nil {
		req.width = width(maxWidth)
	}
	req.work = req.width.estimatedWork()
	req.arrived = c.Now()
	req.schema.widths.Observe(float64(req.width.maxSeats()))
	if reason := assigned.admit(req, req.arrived, func() uint64 { return c.flowHash(req) }); reason != "" {
		return nil, class, c.newRejection(req, reason)
	}
	if req.admitted == nil {
		c.recordAdmission(req)
		return req, class, nil
	}
	if err := c.awaitAdmission(ctx, req); err != nil {
		return nil, class, err
	}
	c.recordAdmission(req)
	return req, class, nil
}

const (
	// maxRequestSeats is the maximum number of seats of one request. maxSeatsFraction is the
	// maximum as a fraction of its level's seats.
	maxRequestSeats  = 10
	maxSeatsFraction = 0.15
)

// classify sets the schema and flow of a request and returns its level. The mandatory schemas match
// all requests.
func (c *Controller) classify(ctx context.Context, req *Request) *level {
	state := c.state.Load()
	if !state.loaded && c.LoadConfig != nil {
		c.LoadConfig(ctx)
		state = c.state.Load()
	}
	found := state.config.findSchema(req.user, req.info)
	if state.levels[found.level].name != Exempt && c.IsExempt != nil && c.IsExempt(req.user, req.info) {
		found = state.config.exempt
	}
	req.schema = c.bindSchema(found, state.levels[found.level])
	req.flow = found.flowOf(req.user, req.info)
	req.fairKey = req.flow
	if found.distinguisher == flowcontrolv1.FlowDistinguisherMethodByUserType {
		req.fairKey = principalOf(ctx, req.user)
	}
	return req.schema.level
}

// bindSchema returns a schema with its level, from the cache if the level is the same. Metrics of a
// schema exist only after its first request.
func (c *Controller) bindSchema(schema *compiledSchema, l *level) *boundSchema {
	if bound := schema.bound.Load(); bound != nil && bound.level == l {
		return bound
	}
	bound := &boundSchema{schema, l, c.Metrics.schemaMetricsFor(schema.name, schema.level)}
	schema.bound.Store(bound)
	return bound
}

// principalOf returns the principal of a request, which is the key of fair queueing between users.
// All users that one client can create or impersonate have the same principal, so a client cannot
// get more seats with more names. user may differ from the user in ctx only if ctx has none.
func principalOf(ctx context.Context, user *request.User) string {
	if request.UserFrom(ctx) == nil {
		return request.PrincipalOf(user, "")
	}
	return request.Principal(ctx)
}

// flowHash returns the hash of a request's schema and fairKey.
func (c *Controller) flowHash(r *Request) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(r.schema.name)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(r.fairKey)
	return h.Sum64()
}

// awaitAdmission waits until a queued request may run.
func (c *Controller) awaitAdmission(ctx context.Context, req *Request) error {
	select {
	case <-req.admitted:
		return nil
	default:
	}
	limit := c.MaxWait
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline) / queueWaitShare
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	reason := reasonTimeout
	req.schema.addWaiting(req, 1)
	defer req.schema.addWaiting(req, -1)
	select {
	case <-req.admitted:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		reason = reasonCancelled
	}
	if req.schema.level.cancelWaiting(req, c.Now(), reason) {
		return c.newRejection(req, reason)
	}
	// The request was admitted at the same time and has its seats. The level is about to close
	// admitted.
	<-req.admitted
	return nil
}

// newRejection records the rejection of a request and returns its error.
func (c *Controller) newRejection(r *Request, reason string) error {
	now := c.Now()
	r.schema.recordRejection(reason, now.Sub(r.arrived))
	l := r.schema.level
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("flow schema %s: %w", r.schema.name, &Rejection{Reason: reason, RetryAfter: l.retryAfter.retryAfterSeconds()})
}

// recordAdmission records that a request was admitted for the first time.
func (c *Controller) recordAdmission(r *Request) {
	r.schema.recordAdmission(r.started.Sub(r.arrived))
	c.recordRunning(r)
}

// Release releases the seats of a request for good. It may be called more than once.
func (c *Controller) Release(r *Request) {
	if r.ended.Swap(true) {
		return
	}
	if !r.suspended {
		c.stopRunning(r)
	}
	r.schema.recordEnd(r, r.ranFor)
}

// Run adjusts the levels' limits every Period until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.running.Store(true)
	defer c.running.Store(false)
	tick := time.NewTicker(Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.Adjust()
		}
	}
}

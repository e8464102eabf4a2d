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

// Period between two adjustments of what levels lend to each other.
const Period = 10 * time.Second

// waitShare of a request's time is how long it waits at most, one part in so many.
const waitShare = 4

// Options of a Controller.
type Options struct {
	// Seats of the whole server.
	Seats int
	// First, if set, is called by requests as long as no configuration was taken.
	First func(context.Context)
	// Always tells of requests that are let in whatever the schemas say.
	Always func(*request.User, *requestinfo.Info) bool
	// MaxWait bounds how long a request without a deadline waits.
	MaxWait time.Duration
	Metrics *Metrics
	Now     func() time.Time
}

// Controller admits requests. Its methods may be called at any time by many.
type Controller struct {
	Options
	seed  maphash.Seed
	state atomic.Pointer[state]
	// running is set while Run runs.
	running atomic.Bool

	mu     sync.Mutex // for those who change state; before level.mu
	levels map[string]*level
}

// state is what requests are classified by.
type state struct {
	config *Config
	taken  bool // by somebody else than New
	levels map[string]*level
}

// schema is a flow schema and where it leads.
type schema struct {
	*rules
	level *level
	*schemaMetrics
}

// New returns a controller.
func New(o Options) *Controller {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Controller{Options: o, seed: maphash.MakeSeed(), levels: map[string]*level{}}
	c.take(Compile(nil, nil), false)
	return c
}

// Configured reports whether the controller has a configuration other than the initial one.
func (c *Controller) Configured() bool { return c.state.Load().taken }

// Running reports whether Run adjusts the limits of levels.
func (c *Controller) Running() bool { return c.running.Load() }

// Take makes a configuration the one that counts for requests from now on.
// Metrics of schemas that are gone, or lead to another level, end with it.
func (c *Controller) Take(config *Config) {
	c.take(config, true)
	c.Metrics.keep(config.bindings())
}

func (c *Controller) take(config *Config, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &state{config: config, taken: taken}
	if s := c.state.Load(); s != nil && s.config.plans == config.plans {
		next.levels = s.levels
	} else {
		next.levels = c.setLevels(config.plans.of)
	}
	c.state.Store(next)
}

// setLevels has the levels do what plans say. One that is gone stays until what is in
// it has ended. The caller holds mu.
func (c *Controller) setLevels(given map[string]*plan) map[string]*level {
	now := c.Now()
	plans := maps.Clone(given)
	for name := range given {
		if c.levels[name] == nil {
			c.levels[name] = &level{name: name, plan: nil, metrics: c.Metrics.level(name, c.Now)}
		}
	}
	for name, l := range c.levels {
		if plans[name] != nil {
			continue
		}
		l.mu.Lock()
		l.leaving = true
		gone := l.idle()
		plans[name] = l.plan
		l.mu.Unlock()
		if gone {
			c.forget(name)
			delete(plans, name)
		}
	}
	divided := divide(plans, c.Seats)
	out := make(map[string]*level, len(given))
	for name, p := range given {
		out[name] = c.levels[name]
		out[name].configure(p, divided[name], now)
	}
	return out
}

// forget a level. The caller holds mu.
func (c *Controller) forget(name string) {
	delete(c.levels, name)
	c.Metrics.forget(name)
}

// Width is what a request is worth.
type Width struct {
	// Seats while it runs, at least 1.
	Seats int
	// Final seats are kept for After when it has ended, for the work that it
	// leaves to others.
	Final int
	After time.Duration
}

func (w Width) most() int { return max(w.Seats, w.Final) }

// work in seat-seconds, before it is known how long it runs.
func (w Width) work() float64 {
	return float64(w.Seats)*guess.Seconds() + float64(w.Final)*w.After.Seconds()
}

// noQueue is the queue of requests that were not queued.
const noQueue = -1

// Request is one that was let in, or waits to be.
type Request struct {
	schema   *schema
	user     *request.User
	op       *requestinfo.Info
	flow     string // as the schema tells requests apart
	share    string // what the queues share seats by, which is the principal where flow is a user
	hash     uint64 // of the share, once it has been in a queue
	width    Width
	work     float64
	arrived  time.Time
	started  time.Time     // zero while it waits
	ran      time.Duration // before it paused
	paused   bool
	queue    int
	virtual  float64 // time of arrival
	turn     chan struct{}
	over     atomic.Bool
	watch    bool
	mutating bool

	next, previous *Request // of the level
}

// Rejection tells that a request is not let in.
type Rejection struct {
	Reason     string
	RetryAfter int // seconds
}

// Error implements error.
func (r *Rejection) Error() string { return "too many requests: " + r.Reason }

// The reasons.
const (
	reasonConcurrency = "concurrency-limit"
	reasonQueueFull   = "queue-full"
	reasonTimeout     = "time-out"
	reasonCancelled   = "cancelled"
)

// Class says by what a request was judged.
type Class struct{ SchemaUID, LevelUID, Level string }

// Begin classifies a request and waits until it may run. width is asked for what
// it is worth, with the most seats that one request of the level may have. When
// err is nil, End must be called.
func (c *Controller) Begin(ctx context.Context, u *request.User, op *requestinfo.Info, width func(most int) Width) (*Request, Class, error) {
	r := &Request{user: u, op: op, watch: op.Verb == "watch", mutating: op.Writes(), queue: noQueue}
	l := c.classify(ctx, r)
	class := Class{SchemaUID: r.schema.uid, Level: l.name}
	l.mu.Lock()
	class.LevelUID = l.plan.uid
	kind, most := l.plan.kind, max(1, min(maxSeats, int(float64(l.nominal)*widestPart)))
	l.mu.Unlock()
	if r.width = (Width{Seats: 1}); kind != exempt && width != nil {
		r.width = width(most)
	}
	r.work = r.width.work()
	r.arrived = c.Now()
	r.schema.widths.Observe(float64(r.width.most()))
	if reason := l.come(r, r.arrived, func() uint64 { return c.hash(r) }); reason != "" {
		return nil, class, c.reject(r, reason)
	}
	if r.turn == nil {
		c.began(r)
		return r, class, nil
	}
	if err := c.wait(ctx, r); err != nil {
		return nil, class, err
	}
	c.began(r)
	return r, class, nil
}

const (
	// maxSeats of one request, and the part of a level's seats that is not
	// exceeded either.
	maxSeats   = 10
	widestPart = 0.15
)

// classify finds the schema of a request. The mandatory ones match all requests.
func (c *Controller) classify(ctx context.Context, r *Request) *level {
	s := c.state.Load()
	if !s.taken && c.First != nil {
		c.First(ctx)
		s = c.state.Load()
	}
	found := s.config.find(r.user, r.op)
	if s.levels[found.level].name != Exempt && c.Always != nil && c.Always(r.user, r.op) {
		found = s.config.exempt
	}
	r.schema = c.bind(found, s.levels[found.level])
	r.flow = found.flow(r.user, r.op)
	if r.share = r.flow; found.distinguish == flowcontrolv1.FlowDistinguisherMethodByUserType {
		r.share = principalOf(ctx, r.user)
	}
	return r.schema.level
}

// bind tells where a schema leads, as long as it leads there the same. What nobody
// asks for has no metrics.
func (c *Controller) bind(r *rules, l *level) *schema {
	if b := r.bound.Load(); b != nil && b.level == l {
		return b
	}
	b := &schema{r, l, c.Metrics.schema(r.name, r.level)}
	r.bound.Store(b)
	return b
}

// principalOf returns the principal of a request, so that a client with many names has one
// share of a level.
func principalOf(ctx context.Context, u *request.User) string {
	if request.UserFrom(ctx) == nil {
		return request.PrincipalOf(u, "")
	}
	return request.Principal(ctx)
}

// hash of a request's share.
func (c *Controller) hash(r *Request) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(r.schema.name)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(r.share)
	return h.Sum64()
}

// wait for the request's turn.
func (c *Controller) wait(ctx context.Context, r *Request) error {
	select {
	case <-r.turn:
		return nil
	default:
	}
	limit := c.MaxWait
	if at, ok := ctx.Deadline(); ok {
		limit = time.Until(at) / waitShare
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	reason := reasonTimeout
	r.schema.waits(r, 1)
	defer r.schema.waits(r, -1)
	select {
	case <-r.turn:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		reason = reasonCancelled
	}
	if r.schema.level.giveUp(r, c.Now(), reason) {
		return c.reject(r, reason)
	}
	<-r.turn
	return nil
}

func (c *Controller) reject(r *Request, reason string) error {
	now := c.Now()
	r.schema.rejected(reason, now.Sub(r.arrived))
	l := r.schema.level
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("flow schema %s: %w", r.schema.name, &Rejection{Reason: reason, RetryAfter: l.refused.after()})
}

func (c *Controller) began(r *Request) {
	r.schema.began(r.started.Sub(r.arrived))
	c.runs(r)
}

// End of a request, or of the part of a watch that takes seats. It may be called
// twice.
func (c *Controller) End(r *Request) {
	if r.over.Swap(true) {
		return
	}
	if !r.paused {
		c.stop(r)
	}
	r.schema.ended(r, r.ran)
}

// Run adjusts the levels' limits until ctx ends.
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

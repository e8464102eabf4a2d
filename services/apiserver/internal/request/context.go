package request

import (
	"binnacle/libs/api"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"binnacle/libs/authorizer"
)

// User is who asks.
type User = authorizer.User

type contextKey int

const (
	keyOperation contextKey = iota
	keyUser
	keyWarnings
	keyStartup
	keyBegun
	keyWaits
	keyRecord
	keyCarried
)

// carried is what every request has from the first filter on: one link of the chain of
// contexts instead of one for each.
type carried struct {
	context.Context
	op    *Operation
	waits Waits
	weigh func(size int) bool
	rest  func(begun bool) (back func() error, ok bool)
	aside func() (back func())
	idle  func() (back func())
	// These are nil while there are none.
	life context.Context
	// principal is the key under which limits count the request.
	principal string
	// level is the priority level that flow control puts the request into.
	level string
	// received is when the request arrived, tracedID its audit id in traces.
	received time.Time
	tracedID string
	record   any
	user     *User
	warnings *Warnings
	begun    *begun
}

// Carry attaches what a request does, a sum of waits, and room for the record of the audit
// log.
func Carry(ctx context.Context, o *Operation) context.Context {
	return &carried{Context: ctx, op: o}
}

// Value implements context.Context.
func (c *carried) Value(key any) any {
	switch key {
	case keyOperation:
		return c.op
	case keyWaits:
		return &c.waits
	case keyCarried:
		return c
	case keyRecord:
		if c.record != nil {
			return c.record
		}
	case keyUser:
		if c.user != nil {
			return c.user
		}
	case keyWarnings:
		if c.warnings != nil {
			return c.warnings
		}
	case keyBegun:
		if c.begun != nil {
			return c.begun
		}
	}
	return c.Context.Value(key)
}

// Apart is the context of work that goes on beside its request, which others may wait for too: it does not
// end with the request, and has no part in its turns, seats and records, which others set meanwhile.
func Apart(ctx context.Context) context.Context {
	return &apart{context.WithoutCancel(ctx), From(ctx)}
}

type apart struct {
	context.Context
	op *Operation
}

// Value implements context.Context.
func (a *apart) Value(key any) any {
	switch key {
	case keyOperation:
		return a.op
	case keyUser, keyWarnings, keyBegun, keyWaits, keyRecord, keyCarried:
		return nil
	}
	return a.Context.Value(key)
}

// SetRecord notes the record of the audit log where Carry has made room for it; false
// where it has not. It is for a filter, before others have the request.
func SetRecord(ctx context.Context, record any) bool {
	c, ok := ctx.Value(keyCarried).(*carried)
	if ok {
		c.record = record
	}
	return ok
}

// SetWeigh notes who lets large work begin, where Carry has made room for it. It is for a
// filter, before others have the request.
func SetWeigh(ctx context.Context, weigh func(size int) bool) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok {
		c.weigh = weigh
	}
}

// Weigh waits until work on so many bytes may begin that the body did not tell of; false
// when it may not in time.
func Weigh(ctx context.Context, size int) bool {
	c, ok := ctx.Value(keyCarried).(*carried)
	return !ok || c.weigh == nil || c.weigh(size)
}

// SetReceived records when the request arrived. Only a filter calls it, before the request is
// shared.
func SetReceived(ctx context.Context, at time.Time) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok {
		c.received = at
	}
}

// Received returns when the request arrived; now if that is not known.
func Received(ctx context.Context) time.Time {
	if c, ok := ctx.Value(keyCarried).(*carried); ok && !c.received.IsZero() {
		return c.received
	}
	return time.Now()
}

// MaxTracedID is the number of bytes of an audit id that traces have, as in Kubernetes.
const MaxTracedID = 64

// SetTracedID records the audit id of the request for traces. Only a filter calls it, before
// the request is shared.
func SetTracedID(ctx context.Context, id string) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok {
		c.tracedID = id[:min(len(id), MaxTracedID)]
	}
}

// TracedID returns the audit id of the request as traces have it; empty outside of requests.
func TracedID(ctx context.Context) string {
	if c, ok := ctx.Value(keyCarried).(*carried); ok {
		return c.tracedID
	}
	return ""
}

// SetLife notes the context that a request has without its deadline, where Carry has made room for
// it. It is for a filter, before others have the request.
func SetLife(ctx context.Context) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok {
		c.life = ctx
	}
}

// Life is the context of what began as a request and lasts, as a connection that was upgraded: it
// does not end with the deadline of the request.
func Life(ctx context.Context) context.Context {
	if c, ok := ctx.Value(keyCarried).(*carried); ok && c.life != nil {
		return c.life
	}
	return ctx
}

// SetRest notes how a request gives back what others wait for while it waits itself, where
// Carry has made room for it. It is for a filter, before others have the request.
func SetRest(ctx context.Context, rest func(begun bool) (back func() error, ok bool)) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok {
		c.rest = rest
	}
}

// Rest gives back what others wait for until back is called; false when that cannot be, as too many
// have. That is sooner for who has not begun to answer. A request may end without back.
func Rest(ctx context.Context, begun bool) (back func() error, ok bool) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok && c.rest != nil {
		return c.rest(begun)
	}
	return func() error { return nil }, true
}

// WithRecord attaches another record.
func WithRecord(ctx context.Context, record any) context.Context {
	return context.WithValue(ctx, keyRecord, record)
}

// RecordFrom returns the record that is closest, nil when there is none.
func RecordFrom(ctx context.Context) any { return ctx.Value(keyRecord) }

// With attaches what the request does.
func With(ctx context.Context, o *Operation) context.Context {
	return context.WithValue(ctx, keyOperation, o)
}

// From returns what the request does, nil before it is resolved.
func From(ctx context.Context) *Operation { o, _ := ctx.Value(keyOperation).(*Operation); return o }

// SetUser notes who asks where Carry has made room for it, and has nobody yet; false where
// it has not. It is for a filter, before others have the request.
func SetUser(ctx context.Context, u *User) bool {
	c, ok := ctx.Value(keyCarried).(*carried)
	if !ok || UserFrom(ctx) != nil {
		return false
	}
	c.user = u
	return true
}

// WithUser attaches who asks.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, keyUser, u)
}

// Self is who the server is when it writes by itself, SelfManager what it is called
// as an owner of fields.
func Self() *User {
	return &User{Name: "system:apiserver", Groups: []string{api.GroupMasters, api.GroupAuthenticated}}
}

// SelfManager: see Self.
const SelfManager = "kube-apiserver"

// UserFrom returns who asks, nil before authentication.
func UserFrom(ctx context.Context) *User { u, _ := ctx.Value(keyUser).(*User); return u }

// WithStartup marks a request that the server makes of itself and that its
// readiness waits for.
func WithStartup(ctx context.Context) context.Context {
	return context.WithValue(ctx, keyStartup, true)
}

// Startup reports whether the server's readiness waits for the request. Webhooks
// and policies do not see such a request, so that none of them can keep the
// server from starting. No client can set the mark.
func Startup(ctx context.Context) bool { startup, _ := ctx.Value(keyStartup).(bool); return startup }

// WithBegun attaches what is to be called when a watch has told of what there was, or
// when a request only waits for other servers, besides what others have attached. It may be
// called more than once.
func WithBegun(ctx context.Context, fn func()) context.Context {
	return context.WithValue(ctx, keyBegun, besides(ctx, fn))
}

// begun is what was attached last, with all before it.
type begun struct{ tell func() }

// SetBegun is WithBegun where Carry has made room for it; false where it has not, or where something
// was attached since that would be found instead. It is for a filter, before others have the
// request.
func SetBegun(ctx context.Context, fn func()) bool {
	c, ok := ctx.Value(keyCarried).(*carried)
	if nearest, _ := ctx.Value(keyBegun).(*begun); !ok || nearest != c.begun {
		return false
	}
	c.begun = besides(ctx, fn)
	return true
}

func besides(ctx context.Context, fn func()) *begun {
	outer, ok := ctx.Value(keyBegun).(*begun)
	if !ok {
		return &begun{fn}
	}
	return &begun{func() { fn(); outer.tell() }}
}

// Begun tells that a watch has told of what there was, or that a request only waits.
func Begun(ctx context.Context) {
	if b, ok := ctx.Value(keyBegun).(*begun); ok {
		b.tell()
	}
}

// waitsAfter is how long another server may take until a request is said to wait only.
const waitsAfter = time.Second

// Aside lets others work while a request waits for another server, until back is called.
func Aside(ctx context.Context) (back func()) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok && c.aside != nil {
		return c.aside()
	}
	return func() {}
}

// OnlyWaits tells that a request only waits for another server, unless that answers soon.
func OnlyWaits(ctx context.Context) (answered func()) {
	back := Aside(ctx)
	b, ok := ctx.Value(keyBegun).(*begun)
	if !ok {
		return back
	}
	timer := time.AfterFunc(waitsAfter, b.tell)
	return func() { timer.Stop(); back() }
}

// SetAside notes how a request that waits for another server lets others work meanwhile, until
// back is called, where Carry has made room for it. It is for a filter, before others have the
// request.
func SetAside(ctx context.Context, aside func() (back func())) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok {
		c.aside = aside
	}
}

// SetIdle records how a request releases all memory and turns that it reserved, where
// Carry has made room for it. It is for a filter, before others have the request.
func SetIdle(ctx context.Context, idle func() (back func())) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok {
		c.idle = idle
	}
}

// idle releases what the request reserved until back is called.
func idle(ctx context.Context) (back func()) {
	if c, ok := ctx.Value(keyCarried).(*carried); ok && c.idle != nil {
		return c.idle()
	}
	return Aside(ctx)
}

// Waits is how long a request waited for others: for its turn, and for admission
// webhooks, and the steps that it took. A nil one takes nothing.
type Waits struct {
	nanoseconds atomic.Int64
	steps       steps
	// authenticated belongs to the request's own goroutine.
	authenticated authenticated
}

// WaitsFrom returns the sum, or nil.
func WaitsFrom(ctx context.Context) *Waits { w, _ := ctx.Value(keyWaits).(*Waits); return w }

// Add adds a wait.
func (w *Waits) Add(d time.Duration) {
	if w != nil {
		w.nanoseconds.Add(int64(d))
	}
}

// Sum is the whole.
func (w *Waits) Sum() time.Duration {
	if w == nil {
		return 0
	}
	return time.Duration(w.nanoseconds.Load())
}

// Bounds of the Warning headers of one answer in characters, as Kubernetes has
// them: when all together are longer than the first, each is cut to the second.
const (
	maxWarnings       = 4 * 1024
	maxWarningWhenCut = 256
)

// Warnings collects the texts of Warning headers: each once, bounded.
type Warnings struct {
	mu    sync.Mutex
	texts []string
	seen  map[string]bool
	// length of all texts as they are told.
	length int
	cut    bool
}

// WithWarnings attaches an empty collection.
func WithWarnings(ctx context.Context) (context.Context, *Warnings) {
	w := &Warnings{}
	return context.WithValue(ctx, keyWarnings, w), w
}

// SetWarnings attaches an empty collection where Carry has made room for it; false where it has
// not. It is for a filter, before others have the request.
func SetWarnings(ctx context.Context) bool {
	c, ok := ctx.Value(keyCarried).(*carried)
	if !ok || ctx.Value(keyWarnings) != nil {
		return false
	}
	c.warnings = &Warnings{}
	return true
}

// Warn adds a warning to the answer of the request.
func Warn(ctx context.Context, text string) {
	if w, ok := ctx.Value(keyWarnings).(*Warnings); ok {
		w.add(text)
	}
}

// Attempt returns what forgets the warnings that come from now on: those of an
// attempt that does not count, because somebody else was quicker.
func Attempt(ctx context.Context) (forget func()) {
	w, ok := ctx.Value(keyWarnings).(*Warnings)
	if !ok {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	texts, length, cut := slices.Clone(w.texts), w.length, w.cut
	seen := maps.Clone(w.seen)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.texts, w.seen, w.length, w.cut = texts, seen, length, cut
	}
}

func (w *Warnings) add(text string) {
	if n := (maxWarnings + 1) * utf8.UTFMax; len(text) > n { // of which less is told anyway
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == "" || w.cut && w.length >= maxWarnings || w.seen[text] {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	w.texts = append(w.texts, text)
	if !w.cut {
		w.length += utf8.RuneCountInString(text)
		if w.length <= maxWarnings {
			return
		}
		// From now on each is cut, those before it too.
		w.cut, w.length = true, 0
		for i := range w.texts {
			w.shorten(i)
		}
		return
	}
	w.shorten(len(w.texts) - 1)
}

// shorten cuts a text and counts it.
func (w *Warnings) shorten(i int) {
	n := utf8.RuneCountInString(w.texts[i])
	if n > maxWarningWhenCut {
		w.texts[i], n = string([]rune(w.texts[i])[:maxWarningWhenCut]), maxWarningWhenCut
	}
	w.length += n
}

// Headers returns the values of the Warning headers (RFC 7234, section 5.5).
func (w *Warnings) Headers() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.texts) == 0 {
		return nil
	}
	out := make([]string, len(w.texts))
	for i, t := range w.texts {
		out[i] = `299 - "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(t) + `"`
	}
	return out
}

// WarningsFrom returns the collection of the request, nil when it has none.
func WarningsFrom(ctx context.Context) *Warnings {
	w, _ := ctx.Value(keyWarnings).(*Warnings)
	return w
}

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

// User is the user that sends a request.
type User = authorizer.User

type contextKey int

const (
	keyInfo contextKey = iota
	keyUser
	keyWarnings
	keyStartup
	keyWork
	keyWaits
	keyRecord
	keyState
)

// state holds the values that every request has from the first filter on. It is one link of the
// context chain instead of one link for each value.
type state struct {
	context.Context
	info  any
	waits Waits
	// The following fields are nil until they are set.
	life context.Context
	// principal is the key under which limits count the request.
	principal string
	// level is the priority level that flow control assigns to the request.
	level string
	// received is the time the request arrived, tracedID its audit id in traces.
	received time.Time
	tracedID string
	record   any
	user     *User
	warnings *Warnings
	work     Work
}

// WithState attaches what a request does (a *requestinfo.Info), a sum of its waits, and space for the values that the
// Set functions record.
func WithState(ctx context.Context, info any) context.Context {
	return &state{Context: ctx, info: info}
}

// Value implements context.Context.
func (c *state) Value(key any) any {
	switch key {
	case keyInfo:
		return c.info
	case keyWaits:
		return &c.waits
	case keyState:
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
	case keyWork:
		if c.work != nil {
			return c.work
		}
	}
	return c.Context.Value(key)
}

// Detach returns a context for work that several requests may wait for. It does not end with the
// request. It does not see the request's limits, seats and records, which filters may set concurrently.
func Detach(ctx context.Context) context.Context {
	return &detached{context.WithoutCancel(ctx), Info(ctx)}
}

type detached struct {
	context.Context
	info any
}

// Value implements context.Context.
func (a *detached) Value(key any) any {
	switch key {
	case keyInfo:
		return a.info
	case keyUser, keyWarnings, keyWork, keyWaits, keyRecord, keyState:
		return nil
	}
	return a.Context.Value(key)
}

// SetRecord records the audit event of the request. It returns false if WithState has not attached
// space for it. Only a filter calls it, before the request is shared.
func SetRecord(ctx context.Context, record any) bool {
	c, ok := ctx.Value(keyState).(*state)
	if ok {
		c.record = record
	}
	return ok
}

// SetReceived records when the request arrived. Only a filter calls it, before the request is
// shared.
func SetReceived(ctx context.Context, at time.Time) {
	if c, ok := ctx.Value(keyState).(*state); ok {
		c.received = at
	}
}

// Received returns the time the request arrived, or the current time if it is not known.
func Received(ctx context.Context) time.Time {
	if c, ok := ctx.Value(keyState).(*state); ok && !c.received.IsZero() {
		return c.received
	}
	return time.Now()
}

// MaxTracedID is the maximum length in bytes of an audit id in traces, as in Kubernetes.
const MaxTracedID = 64

// SetTracedID records the audit id of the request for traces. Only a filter calls it, before
// the request is shared.
func SetTracedID(ctx context.Context, id string) {
	if c, ok := ctx.Value(keyState).(*state); ok {
		c.tracedID = id[:min(len(id), MaxTracedID)]
	}
}

// TracedID returns the audit id of the request as traces have it. It is empty outside of requests.
func TracedID(ctx context.Context) string {
	if c, ok := ctx.Value(keyState).(*state); ok {
		return c.tracedID
	}
	return ""
}

// SetLife records the context that the request has without its deadline, if WithState has attached
// space for it. Only a filter calls it, before the request is shared.
func SetLife(ctx context.Context) {
	if c, ok := ctx.Value(keyState).(*state); ok {
		c.life = ctx
	}
}

// Life returns the context of a connection that outlives its request, for example an upgraded one.
// The context does not end with the deadline of the request.
func Life(ctx context.Context) context.Context {
	if c, ok := ctx.Value(keyState).(*state); ok && c.life != nil {
		return c.life
	}
	return ctx
}

// WithRecord attaches another audit event.
func WithRecord(ctx context.Context, record any) context.Context {
	return context.WithValue(ctx, keyRecord, record)
}

// RecordFrom returns the innermost audit event, or nil.
func RecordFrom(ctx context.Context) any { return ctx.Value(keyRecord) }

// WithInfo attaches what a request does.
func WithInfo(ctx context.Context, info any) context.Context {
	return context.WithValue(ctx, keyInfo, info)
}

// Info returns what the request does, as passed to WithState or WithInfo. Package requestinfo has the
// typed form.
func Info(ctx context.Context) any { return ctx.Value(keyInfo) }

// SetUser records the user. It returns false if WithState has not attached space for it or the request
// already has a user. Only a filter calls it, before the request is shared.
func SetUser(ctx context.Context, u *User) bool {
	c, ok := ctx.Value(keyState).(*state)
	if !ok || UserFrom(ctx) != nil {
		return false
	}
	c.user = u
	return true
}

// WithUser attaches a user.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, keyUser, u)
}

// Self returns the user that the server itself writes as. SelfManager is its field manager.
func Self() *User {
	return &User{Name: "system:apiserver", Groups: []string{api.GroupMasters, api.GroupAuthenticated}}
}

// SelfManager is the field manager of writes by the server itself; see Self.
const SelfManager = "kube-apiserver"

// UserFrom returns the user of the request. It is nil before authentication.
func UserFrom(ctx context.Context) *User { u, _ := ctx.Value(keyUser).(*User); return u }

// WithStartup marks a request that the server sends itself and that its readiness waits for.
func WithStartup(ctx context.Context) context.Context {
	return context.WithValue(ctx, keyStartup, true)
}

// Startup reports whether the server's readiness waits for the request. Webhooks
// and policies do not see such a request, so that none of them can keep the
// server from starting. No client can set the mark.
func Startup(ctx context.Context) bool { startup, _ := ctx.Value(keyStartup).(bool); return startup }

// Waits records how long a request waited for limits and for admission webhooks, and the steps that
// it reached. Its methods accept a nil receiver, which records nothing.
type Waits struct {
	nanoseconds atomic.Int64
	steps       steps
	// authentication is only accessed by the request's own goroutine.
	authentication authentication
}

// WaitsFrom returns the Waits of the request, or nil.
func WaitsFrom(ctx context.Context) *Waits { w, _ := ctx.Value(keyWaits).(*Waits); return w }

// Add adds a wait.
func (w *Waits) Add(d time.Duration) {
	if w != nil {
		w.nanoseconds.Add(int64(d))
	}
}

// Sum returns the total of all waits.
func (w *Waits) Sum() time.Duration {
	if w == nil {
		return 0
	}
	return time.Duration(w.nanoseconds.Load())
}

// Limits of the Warning headers of one response in characters, as in Kubernetes. If all warnings
// together exceed maxWarnings, each is cut to maxWarningWhenCut.
const (
	maxWarnings       = 4 * 1024
	maxWarningWhenCut = 256
)

// Warnings collects the texts of Warning headers, without duplicates and bounded in size.
type Warnings struct {
	mu    sync.Mutex
	texts []string
	seen  map[string]bool
	// length is the total length of all texts in characters, after cutting.
	length int
	cut    bool
}

// WithWarnings attaches an empty collection.
func WithWarnings(ctx context.Context) (context.Context, *Warnings) {
	w := &Warnings{}
	return context.WithValue(ctx, keyWarnings, w), w
}

// SetWarnings attaches an empty collection. It returns false if WithState has not attached space for it
// or the request already has one. Only a filter calls it, before the request is shared.
func SetWarnings(ctx context.Context) bool {
	c, ok := ctx.Value(keyState).(*state)
	if !ok || ctx.Value(keyWarnings) != nil {
		return false
	}
	c.warnings = &Warnings{}
	return true
}

// Warn adds a warning to the response of the request.
func Warn(ctx context.Context, text string) {
	if w, ok := ctx.Value(keyWarnings).(*Warnings); ok {
		w.add(text)
	}
}

// Attempt returns a function that removes the warnings added after this call. It is for an attempt
// that is repeated because a concurrent write came first.
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
	// A longer text is cut in any case.
	if n := (maxWarnings + 1) * utf8.UTFMax; len(text) > n {
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
		// From now on every text is cut, including the earlier ones.
		w.cut, w.length = true, 0
		for i := range w.texts {
			w.shorten(i)
		}
		return
	}
	w.shorten(len(w.texts) - 1)
}

// shorten cuts the text at index i and adds its length.
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

// WarningsFrom returns the collection of the request, or nil.
func WarningsFrom(ctx context.Context) *Warnings {
	w, _ := ctx.Value(keyWarnings).(*Warnings)
	return w
}

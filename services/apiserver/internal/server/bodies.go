package server

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

const (
	// bodiesPerCPU is how many bytes the bodies of one priority level occupy together, for
	// each CPU, and bodiesLeast how many where there are few CPUs.
	bodiesPerCPU = 8 << 20
	bodiesLeast  = 32 << 20
	// largeBody is the size in bytes from which bodies are worked on only so many at a
	// time: small ones never wait for them. largePerCPU is how many bytes of them, for
	// each CPU but one, which is for the others.
	largeBody   = request.LargeBody
	largePerCPU = 3 << 20
	// largeTarget is the size in bytes from which the address of a request counts too.
	largeTarget = 4 << 10
	// costlyBody is how many times as much a body counts that is not read directly.
	costlyBody = 4
	// costlyYAML is the same of YAML, which takes as long to read as JSON to be made, checked and stored.
	costlyYAML = 16
	// leastWeighed is the size in bytes below which no body is large, whatever is in it.
	leastWeighed = 512
	perValue     = request.PerValue
	// leastBody is what a body counts at least: so much a request takes anyway.
	leastBody = 4 << 10
	// maxWaitingBodies of one user wait until others have been dealt with.
	maxWaitingBodies = 1000
	// bodyWaitShare of a request's time is how long they wait, one part in so many.
	bodyWaitShare = 4
	// seatsWait is how long who has a turn may wait for its seats.
	seatsWait = 10 * time.Millisecond
	// bodyWaitEndless is how long those wait that may last as long as their clients like.
	bodyWaitEndless = 15 * time.Second
)

// receive reads the bodies of authorized requests. A request whose body does not arrive
// soon holds none of its seats meanwhile. The memory of bodies is bounded for each priority
// level, and shared fairly among the principals of the level: a body counts as it arrives, not as it is
// announced. Work on large
// bodies is bounded in the same way, because an object takes many times the memory of its
// text.
func (c *Config) receive(next http.Handler) http.Handler {
	cpus := runtime.GOMAXPROCS(0)
	rooms, large := newLevelBodies(max(bodiesLeast, bodiesPerCPU*cpus)), newBodies(largePerCPU*max(1, cpus-1))
	return receiving(rooms, large, c.LargeRequests, c.Metrics.bodies, next)
}

func receiving(rooms *levelBodies, large *bodies, turns serving.LargeRequests, sizes *bodySizes, next http.Handler) http.Handler {
	large.room.strict = true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		op, u := requestinfo.From(ctx), clientOf(ctx)
		work, later := ofTarget(op, r), slices.Contains([]string{"patch", "update", "delete", "deletecollection"}, op.Verb) // of what may be large
		came := 0
		if hasBody(op, r) {
			level := request.PriorityLevel(ctx)
			reserved := &reservedBody{room: rooms.acquire(level), ctx: ctx, user: u}
			defer serving.AtEnd(w, func(any) {
				reserved.leave()
				rooms.release(level)
			})
			body, err := reserved.receive(w, r)
			if err != nil && ctx.Err() == nil { // the request has no seats to go on with
				tooMany(w, 1)
				return
			}
			came = len(body)
			sizes.came(op, came)
			request.Step(ctx, request.StepBody)
			work += weight(body, r)
			later = true // what it stands for may be far more than its text
		}
		if work == 0 && !later {
			next.ServeHTTP(w, r)
			return
		}
		worked := &workedOn{ResponseWriter: w, ctx: ctx, user: u, among: large, turns: turns, request: r, beginning: make(chan struct{}, 1)}
		defer serving.AtEnd(w, func(any) { worked.finish() })
		if size := roomFor(came, work); size > 0 && !worked.enterLate(size) {
			tooMany(w, 1)
			return
		}
		request.SetWeigh(ctx, func(size int) bool {
			return (size < largeBody || worked.enterLate(size)) && worked.begin()
		})
		request.SetAside(ctx, worked.aside)
		request.SetIdle(ctx, worked.idle)
		if !request.SetBegun(ctx, worked.leave) {
			r = r.WithContext(request.WithBegun(ctx, worked.leave))
		}
		next.ServeHTTP(worked, r)
	})
}

// roomFor is how many bytes of room there have to be for a body of so many that counts so much, 0 for one
// that is not large: weights tell how long it takes, four times as much as what it takes of memory.
func roomFor(body, weight int) int {
	if weight == 0 {
		return 0
	}
	return max(largeBody, body, weight/4)
}

// workedOn answers a request that is large, or may turn out to be. It has room among what is
// worked on, and a turn while that is done. The work is over when the answer begins, or when it
// lasts because of webhooks or the store: who does not read, and what does not answer, keeps
// nobody waiting.
type workedOn struct {
	http.ResponseWriter
	ctx     context.Context
	user    client
	request *http.Request
	among   *bodies
	turns   serving.LargeRequests

	beginning chan struct{} // has room for the one who waits for a turn
	entering  sync.Mutex    // of those who are at work for one request, before mu

	mu   sync.Mutex // before those of bodies and turns
	room func()     // gives back what is held of it; nil for nothing
	size int        // of the room that was held last
	// waits counts what the request waits for without its room, lent is the size that it
	// takes again afterwards.
	waits, lent int
	turn        bool
	// due tells that it is to have one: it has been asked for.
	due bool
	// over tells that the answer has ended: who still works has no room.
	over bool
	// seated tells that its seats are not waited for.
	seated bool
	away   int // how many other servers are waited for
}

// enter waits for room among what is worked on, unless the request has some or needs none.
func (w *workedOn) enter(size int) bool {
	if size == 0 || w.large() {
		return true
	}
	leave, ok := w.among.enter(w.ctx, w.user, min(size, w.among.share()))
	if ok {
		w.has(leave, min(size, w.among.share()))
	}
	return ok
}

// enterLate is enter for who has been let in by flow control: others that have room here may
// wait for his seats.
func (w *workedOn) enterLate(size int) bool {
	w.entering.Lock()
	defer w.entering.Unlock()
	if w.large() {
		return true
	}
	if leave, ok := w.among.enterNow(w.user, min(size, w.among.share())); ok {
		w.has(leave, min(size, w.among.share()))
		return true
	}
	return w.rest(func() bool { return w.enter(size) })
}

// begin waits for a turn, unless there is nothing large to be done. Several may be at work for
// one request, which has one turn.
func (w *workedOn) begin() bool {
	w.mu.Lock()
	w.due = w.room != nil
	due := w.due
	w.mu.Unlock()
	if !due {
		return true
	}
	ctx, cancel := context.WithTimeout(w.ctx, bodyWait(w.ctx))
	defer cancel()
	select {
	case w.beginning <- struct{}{}:
		defer func() { <-w.beginning }()
	case <-ctx.Done():
		return false
	}
	if w.beginNow() {
		return true
	}
	return w.beginRested(ctx) && (w.beginNow() || w.await(ctx, w.turns.EnterFirst))
}

// beginRested waits without the request's seats. Others may have those for long: then somebody
// else has the turn, which is waited for anew, with the seats.
func (w *workedOn) beginRested(ctx context.Context) bool {
	w.seat(false)
	defer w.seat(true)
	return w.rest(func() bool {
		came := w.await(ctx, w.turns.Enter)
		time.AfterFunc(seatsWait, w.yield)
		return came
	})
}

func (w *workedOn) seat(seated bool) {
	w.mu.Lock()
	w.seated = seated
	w.mu.Unlock()
}

// yield lets others have the turn, unless the request has its seats.
func (w *workedOn) yield() {
	w.mu.Lock()
	turn := w.turn && !w.seated
	w.turn = w.turn && w.seated
	w.mu.Unlock()
	if turn {
		w.turns.Leave()
	}
}

// beginNow is begin for who does not wait.
func (w *workedOn) beginNow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == nil || w.turn || w.away > 0 {
		return true
	}
	w.turn = w.turns.EnterNow()
	return w.turn
}

// await takes a turn, which nobody may need any more when it comes.
func (w *workedOn) await(ctx context.Context, enter func(*http.Request) error) bool {
	if enter(w.request.WithContext(ctx)) != nil {
		return false
	}
	w.mu.Lock()
	w.turn = w.room != nil && w.away == 0
	needed := w.turn
	w.mu.Unlock()
	if !needed {
		w.turns.Leave()
	}
	return true
}

// aside lets others have the turn while another server is waited for.
func (w *workedOn) aside() (back func()) {
	w.mu.Lock()
	turn := w.turn
	w.turn = false
	w.away++
	w.mu.Unlock()
	if turn {
		w.turns.Leave()
	}
	return func() {
		w.mu.Lock()
		w.away--
		due := w.due
		w.mu.Unlock()
		if due {
			w.begin() // or goes on without, as what has been done stays done
		}
	}
}

// idle releases the turn and the room until back is called. Several may wait for one request,
// which takes the room again after the last of them. Without room afterwards the work goes on,
// because what is done stays done.
func (w *workedOn) idle() (back func()) {
	turnBack := w.aside()
	w.mu.Lock()
	room := w.room
	if room != nil {
		w.lent = w.size
	}
	w.room = nil
	w.waits++
	w.mu.Unlock()
	if room != nil {
		room()
	}
	return func() {
		w.mu.Lock()
		size := 0
		if w.waits--; w.waits == 0 {
			size, w.lent = w.lent, 0
		}
		w.mu.Unlock()
		if size > 0 {
			w.enterLate(size)
		}
		turnBack()
	}
}

// rest gives the request's seats back while wait waits. Without wait, or without seats
// afterwards, the work is over.
func (w *workedOn) rest(wait func() bool) bool {
	back, ok := request.Rest(w.ctx, true)
	if ok {
		came := wait()
		ok = back() == nil && came // the request needs its seats to report the failure
	}
	if !ok {
		w.leave()
	}
	return ok
}

// large tells that there is room for the work.
func (w *workedOn) large() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.room != nil
}

func (w *workedOn) has(leave func(), size int) {
	w.mu.Lock()
	over := w.over
	if !over {
		w.room, w.size = leave, size
	}
	w.mu.Unlock()
	if over {
		leave()
	}
}

func (w *workedOn) finish() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.leave()
}

func (w *workedOn) leave() {
	w.mu.Lock()
	room, turn := w.room, w.turn
	w.room, w.turn = nil, false
	w.mu.Unlock()
	if turn {
		w.turns.Leave()
	}
	if room != nil {
		room()
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *workedOn) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.leave()
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *workedOn) Write(b []byte) (int, error) {
	w.leave()
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher: watches look for it.
func (w *workedOn) Flush() {
	w.leave()
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Send implements serving.Sender.
func (w *workedOn) Send(b []byte) error {
	w.leave()
	return serving.Send(w.ResponseWriter, b)
}

// Hijack implements http.Hijacker: what is upgraded has begun.
func (w *workedOn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.leave()
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap serves http.ResponseController.
func (w *workedOn) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hasBody reports whether a request has a body that a handler reads. A body that announces
// too much is left to the handler, which rejects it.
func hasBody(op *requestinfo.Info, r *http.Request) bool {
	known := op.Target != nil || op.Foreign != nil
	return known && op.Writes() && !op.LongRunning() && r.ContentLength != 0 && r.ContentLength <= request.MaxBody
}

// bodyWait is how long a request waits for bodies.
func bodyWait(ctx context.Context) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return bodyWaitEndless
	}
	return time.Until(at) / bodyWaitShare
}

// work has large requests begin in turns.
func (c *Config) work(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !request.Weigh(r.Context(), 0) {
			tooMany(w, 1)
			return
		}
		next.ServeHTTP(w, r)
	})
}

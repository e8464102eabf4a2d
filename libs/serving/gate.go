package serving

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// gate counts the requests in flight, and refuses new ones once it is closed. Health and metrics
// pass uncounted: a draining server still answers them.
type gate struct {
	next        http.Handler
	longRunning func(*http.Request) bool
	// sendRetryAfter: the listener stays open during the drain, and clients get 429 with
	// Retry-After.
	sendRetryAfter bool
	limits         *limits

	mu       sync.Mutex // leaf
	closed   bool
	inFlight [2]int           // by class
	drained  [2]chan struct{} // closed when the gate is closed and the count of the class is 0
}

// Request classes. A drain waits for short requests and ends long ones.
const (
	short = iota
	long
)

func newGate(next http.Handler, longRunning func(*http.Request) bool, sendRetryAfter bool, l *limits) *gate {
	return &gate{
		limits:         l,
		next:           next,
		longRunning:    longRunning,
		sendRetryAfter: sendRetryAfter,
		drained:        [2]chan struct{}{make(chan struct{}), make(chan struct{})},
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h, ok := r.Context().Value(headerConnKey{}).(*headerConn); ok {
		h.headerDone()
	}
	class := short
	if r.Method == http.MethodOptions && r.RequestURI == "*" {
		g.serve(w, r, class, http.HandlerFunc(serveServerOptions), nil)
		return
	}
	if passesGate(r.URL.Path) {
		g.serve(w, r, class, g.next, nil)
		return
	}
	if g.longRunning != nil && g.longRunning(r) {
		class = long
	}
	if !g.enter(class) {
		g.serve(w, r, short, http.HandlerFunc(g.refuse), nil)
		return
	}
	g.serve(w, r, class, g.next, func() { g.leave(class) })
}

// serve applies the client limits and calls next. leave, if not nil, is called once the response is
// sent.
func (g *gate) serve(w http.ResponseWriter, r *http.Request, class int, next http.Handler, leave func()) {
	reserved, ok := g.limits.headers.reserveFor(r)
	x, r := g.limits.exchange(w, r, class)
	defer AtEnd(x, func(any) {
		x.finish()
		g.limits.headers.release(reserved)
		if leave != nil {
			x.whenSent(leave)
		}
	})
	if !ok {
		next = http.HandlerFunc(rejectLargeHeader)
	}
	next.ServeHTTP(x, r)
}

// rejectLargeHeader refuses a request with a large header section while too many others are in
// flight.
func rejectLargeHeader(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // otherwise net/http reads the rest of the body first
	}
	w.Header().Set("Retry-After", "1")
	writeStatus(w, http.StatusTooManyRequests, "TooManyRequests", "too many requests with large headers are in progress, please try again later")
}

// serveServerOptions answers "OPTIONS *" as net/http does.
func serveServerOptions(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "0")
}

func passesGate(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "healthz", "livez", "readyz", "metrics":
		return true
	}
	return false
}

func (g *gate) enter(class int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inFlight[class]++
	return true
}

func (g *gate) leave(class int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight[class]--
	if g.closed && g.inFlight[class] == 0 {
		close(g.drained[class])
	}
}

// close refuses all later requests.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	for class, n := range g.inFlight {
		if n == 0 {
			close(g.drained[class])
		}
	}
}

// wait blocks until a class has drained or atMost has passed. It returns the number of requests
// left. The gate must be closed.
func (g *gate) wait(class int, atMost time.Duration) int {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-g.drained[class]:
		return 0
	case <-timer.C:
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.inFlight[class]
	}
}

// isDrained reports whether no request is left. The gate must be closed.
func (g *gate) isDrained() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight == [2]int{}
}

func (g *gate) refuse(w http.ResponseWriter, _ *http.Request) {
	code, reason, after := http.StatusServiceUnavailable, "ServiceUnavailable", 1
	if g.sendRetryAfter {
		code, reason, after = http.StatusTooManyRequests, "TooManyRequests", 5
	}
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Retry-After", strconv.Itoa(after))
	writeStatus(w, code, reason, "the server is shutting down, please try again later")
}

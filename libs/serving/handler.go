package serving

import (
	"net/http"
	"strconv"
	"strings"

	"binnacle/libs/serving/conns"
	"binnacle/libs/serving/drain"
	"binnacle/libs/serving/exchange"
)

// gate is the outermost handler of a Server. It applies the limits for stalled clients and large
// header sections, and counts the requests in flight. During a shutdown it rejects new requests.
// Health and metrics requests are not counted, so that a draining server still serves them.
type gate struct {
	next        http.Handler
	longRunning func(*http.Request) bool
	// sendRetryAfter makes the gate reject requests with 429 instead of 503 during a shutdown,
	// because the listener stays open.
	sendRetryAfter bool
	limits         *exchange.Limits
	headers        *conns.HeaderLimits
	requests       *drain.Counter
}

func newGate(next http.Handler, longRunning func(*http.Request) bool, sendRetryAfter bool, limits *exchange.Limits,
	headerLimits *conns.HeaderLimits) *gate {
	return &gate{
		next:           next,
		longRunning:    longRunning,
		sendRetryAfter: sendRetryAfter,
		limits:         limits,
		headers:        headerLimits,
		requests:       drain.NewCounter(),
	}
}

// ServeHTTP passes requests on until shutdown has begun, and counts them by class so that shutdown
// can wait for them. Monitoring requests always pass.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	class := drain.Short
	if r.Method == http.MethodOptions && r.RequestURI == "*" {
		g.serveLimited(w, r, class, http.HandlerFunc(serveServerOptions), nil)
		return
	}
	if isMonitoringPath(r.URL.Path) {
		g.serveLimited(w, r, class, g.next, nil)
		return
	}
	if g.longRunning != nil && g.longRunning(r) {
		class = drain.Long
	}
	if !g.requests.Enter(class) {
		g.serveLimited(w, r, drain.Short, http.HandlerFunc(g.rejectShutdown), nil)
		return
	}
	g.serveLimited(w, r, class, g.next, func() { g.requests.Leave(class) })
}

// serveLimited calls next with the limits for stalled clients and large header sections. leave, if
// not nil, is called once the response is sent.
func (g *gate) serveLimited(w http.ResponseWriter, r *http.Request, class drain.Class, next http.Handler, leave func()) {
	release, err := g.headers.Reserve(r)
	x, r := g.limits.Start(w, r, class == drain.Long)
	defer exchange.AtEnd(x, func(any) {
		x.Finish()
		release()
		if leave != nil {
			x.WhenSent(leave)
		}
	})
	if err != nil {
		next = http.HandlerFunc(rejectLargeHeader)
	}
	next.ServeHTTP(x, r)
}

// rejectLargeHeader rejects a request with a large header section because the header sections of
// other requests use up the memory for them.
func rejectLargeHeader(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // otherwise net/http reads the rest of the body first
	}
	w.Header().Set("Retry-After", "1")
	writeStatus(w, http.StatusTooManyRequests, "TooManyRequests", conns.ErrTooManyLargeHeaders.Error())
}

// serveServerOptions responds to "OPTIONS *" with an empty 200, as net/http does.
func serveServerOptions(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "0")
}

// isMonitoringPath reports whether a path is a health or metrics endpoint.
func isMonitoringPath(path string) bool {
	segment, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch segment {
	case "healthz", "livez", "readyz", "metrics":
		return true
	}
	return false
}

// rejectShutdown rejects a request that arrives during the shutdown.
func (g *gate) rejectShutdown(w http.ResponseWriter, _ *http.Request) {
	code := http.StatusServiceUnavailable
	reason := "ServiceUnavailable"
	retryAfter := 1 // seconds
	if g.sendRetryAfter {
		code = http.StatusTooManyRequests
		reason = "TooManyRequests"
		retryAfter = 5
	}
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Retry-After", strconv.Itoa(retryAfter))
	writeStatus(w, code, reason, "the server is shutting down, please try again later")
}

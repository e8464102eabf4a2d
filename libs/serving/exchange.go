package serving

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving/h2"
)

const (
	// patience is how many times longer the client of a steady request may stall.
	patience = 2
	// pause is how long the client of any other long-running request may: people
	// stop the output of a command to read it.
	pause = time.Hour
	// bufferedAnswer is what a connection takes of an answer without waiting for
	// the client: less than the buffers of net/http.
	bufferedAnswer = 2 << 10
	// writtenAtOnce is what has to leave within one time-out.
	writtenAtOnce = 256 << 10
)

// Steady tells that the client of a long-running request has to go on reading, as
// that of a watch has: it is cut when it does not for twice --stalled-client-timeout.
func Steady(w http.ResponseWriter) {
	if x := exchangeOf(w); x != nil { // else a writer without a client
		x.setStall(patience * x.limits.stall)
		x.steady = true
	}
}

// exchange is a request and its response, with a client that may stall. The body must not pause
// for longer than the stall timeout. The response ends when its client takes nothing for that long:
// the window of its HTTP/2 stream stays closed, or its connection acknowledges nothing. Waiting for
// other streams of the connection does not count.
type exchange struct {
	http.ResponseWriter
	limits    *limits
	deadlines deadlines // nil where the writer below has none
	proto     int
	class     int
	stall     time.Duration
	own       ownStream    // of package h2; nil for HTTP/1 and net/http's HTTP/2
	progress  progress     // of the others
	body      *boundedBody // nil when there is none
	writing   guard
	pausing   *pausing  // nil when nobody waits for what the handler has
	below     *turnConn // of HTTP/1, whose responses have their connection for themselves; may be nil
	buffered  int       // of the answer, since the last flush
	steady    bool
	hijacked  bool
	stalled   bool // it was counted

	apart *apart // who writes instead; nil for whoever has this
	lasts bool   // beyond the handler
	ends  []func(failure any)
}

// belowKey is that of a connection below TLS, in the context of its requests.
type belowKey struct{}

// ownStream is what the streams of package h2 can do beside that. They end by themselves when
// their clients stall.
type ownStream interface {
	SetStallTimeout(time.Duration)
	OnClose(func())
}

// deadlines are what net/http's own writers can do; one in the past cuts at once.
type deadlines interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// stallMetrics count what was cut.
type stallMetrics struct{ bodies, answers prometheus.Counter }

// newStallMetrics registers the metrics, unless the registerer is nil.
func newStallMetrics(r prometheus.Registerer) (*stallMetrics, error) {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_stalled_clients_total",
		Help: "Requests that were cut because the client neither sent the body nor read the answer.",
	}, []string{"part"})
	m := &stallMetrics{bodies: v.WithLabelValues("body"), answers: v.WithLabelValues("answer")}
	if r == nil {
		return m, nil
	}
	return m, r.Register(v)
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// limits of what clients may hold up.
type limits struct {
	// stall is how long a client may take nothing, or send nothing, that is waited for; body
	// how long a whole body may take, and response how long a response may take of a client
	// that is slower than minRate; 0 for no bound.
	stall, body, response time.Duration
	metrics               *stallMetrics
	heads                 *heads // may be nil
}

// exchange bounds a request, and returns what takes the places of its parts.
// finish must be called at the end.
func (l *limits) exchange(w http.ResponseWriter, r *http.Request, class int) (*exchange, *http.Request) {
	x := &exchange{ResponseWriter: w, limits: l, proto: r.ProtoMajor, class: class}
	x.own, _ = w.(ownStream)
	if x.deadlines, _ = w.(deadlines); x.deadlines == nil {
		return x, r
	}
	x.writing.overdue = x.overdue
	x.progress.conn, _ = r.Context().Value(belowKey{}).(*turnConn)
	if x.proto == 1 {
		x.below = x.progress.conn
	}
	switch {
	case class == long:
		x.setStall(pause)
		_ = x.deadlines.SetWriteDeadline(time.Time{}) // that of the server is for short ones
	case x.own == nil:
		x.stall = connPatience * l.stall
		if l.response > 0 {
			x.progress.after = time.Now().Add(l.response)
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return x, r
	}
	x.body = &boundedBody{ReadCloser: r.Body, stall: l.stall}
	x.body.reading.overdue = func(bool) time.Duration {
		l.metrics.bodies.Inc()
		_ = x.deadlines.SetReadDeadline(longAgo)
		return 0
	}
	if class == long {
		return x, r // what is sent in it goes on as long as the request
	}
	if l.body > 0 {
		x.body.until = time.Now().Add(l.body)
	}
	// The server looks at the body of its own request when it writes an answer.
	inner := new(http.Request)
	*inner = *r
	inner.Body = x.body
	return x, inner
}

// setStall sets how long the client of a long-running request may take nothing.
func (x *exchange) setStall(d time.Duration) {
	x.stall = d
	if x.own != nil {
		x.own.SetStallTimeout(d)
	}
}

// begin begins a write. Streams of package h2 watch their clients themselves.
func (x *exchange) begin() {
	if x.own != nil {
		x.writing.begin(0)
		return
	}
	x.writing.begin(x.progress.firstCheck(x.stall))
}

// overdue cuts a response whose client takes nothing of it. It returns the time until the next
// check, or 0 after the cut.
func (x *exchange) overdue(first bool) time.Duration {
	next := x.progress.nextCheck(first, x.stall)
	if next == 0 {
		x.cut()
	}
	return next
}

// cut ends an answer that is stuck: because the client does not read, or because
// net/http reads the rest of the body before it writes.
func (x *exchange) cut() {
	x.limits.metrics.answers.Inc()
	_ = x.deadlines.SetWriteDeadline(longAgo)
	_ = x.deadlines.SetReadDeadline(longAgo)
	if x.progress.dead { // net/http's HTTP/2 would wait for its write
		_ = x.progress.conn.SetDeadline(longAgo)
	}
}

// finish bounds what net/http does after the handler: sending the last part of
// the answer, and reading the rest of the body.
func (x *exchange) finish() {
	if x.deadlines == nil {
		return
	}
	x.writing.close()
	if x.body != nil {
		x.body.reading.close()
	}
	if x.hijacked {
		return
	}
	switch {
	case x.own != nil:
		if x.class == long {
			x.own.SetStallTimeout(x.limits.stall)
		}
	case x.proto == 1:
		// The rest of the body is read first.
		_ = x.deadlines.SetWriteDeadline(time.Now().Add(connPatience * x.limits.stall))
		if x.body != nil && !x.body.ended.Load() {
			_ = x.deadlines.SetReadDeadline(time.Now().Add(x.limits.stall))
		}
	default: // what is left waits for other streams
		_ = x.deadlines.SetWriteDeadline(time.Now().Add(max(connPatience*x.limits.stall, x.limits.response)))
	}
}

// whenSent calls f once the response is sent, as far as the writer below tells.
func (x *exchange) whenSent(f func()) {
	if x.own == nil {
		f()
		return
	}
	x.own.OnClose(f)
}

// WriteHeader implements http.ResponseWriter. Engines call it at the end of a handler that has
// written nothing on their writer.
func (x *exchange) WriteHeader(code int) {
	if x.apart == nil {
		x.ResponseWriter.WriteHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (n int, err error) {
	if x.buffered += len(p); x.buffered < bufferedAnswer || x.deadlines == nil {
		return x.ResponseWriter.Write(p)
	}
	for {
		part := p[n:min(len(p), n+writtenAtOnce)]
		x.begin()
		done, err := x.send(part)
		err = x.written(err)
		if n += done; err != nil || n == len(p) {
			return n, err
		}
	}
}

// send writes a part of the response. Over HTTP/1 all records of the part leave together. Over HTTP/2
// its frames do, see pacedConn.
func (x *exchange) send(part []byte) (int, error) {
	if x.below == nil || len(part) < largeSend {
		return x.ResponseWriter.Write(part)
	}
	x.below.cork()
	n, err := x.ResponseWriter.Write(part)
	if failed := x.below.uncork(); err == nil {
		err = failed
	}
	return n, err
}

// Flush implements http.Flusher.
func (x *exchange) Flush() { _ = x.FlushError() }

// FlushError serves http.ResponseController.
func (x *exchange) FlushError() error {
	x.buffered = 0
	if x.deadlines == nil {
		return http.NewResponseController(x.ResponseWriter).Flush()
	}
	x.begin()
	if f, ok := x.ResponseWriter.(interface{ FlushError() error }); ok {
		return x.written(f.FlushError())
	}
	return x.written(http.NewResponseController(x.ResponseWriter).Flush())
}

// Send implements Sender.
func (x *exchange) Send(p []byte) error {
	below, ok := x.ResponseWriter.(Sender)
	if !ok || x.deadlines == nil || x.buffered > 0 || len(p) > writtenAtOnce {
		if _, err := x.Write(p); err != nil {
			return err
		}
		return x.FlushError()
	}
	x.begin()
	return x.written(below.Send(p))
}

// written ends a write, and waits until the handler may go on if the client had it
// paused.
func (x *exchange) written(err error) error {
	if errors.Is(err, h2.ErrStalled) && !x.stalled {
		x.stalled = true
		x.limits.metrics.answers.Inc()
	}
	if paused := x.writing.end(); paused && err == nil {
		return x.pausing.resume()
	}
	return err
}

// Hijack implements http.Hijacker. What is written to the connection of a steady
// request stays bounded; otherwise the connection is its new owner's.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked = true
	if x.steady {
		steady := &steadyConn{Conn: conn, stall: x.stall, pausing: x.pausing, progress: progress{conn: x.progress.conn}}
		steady.writing.overdue = steady.overdue
		steady.writing.pause = x.pausing.orElse(steady.cut)
		conn = steady
		rw.Writer.Reset(conn)
	}
	return conn, rw, nil
}

// Unwrap serves http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// boundedBody is the body of a request that has to go on arriving.
type boundedBody struct {
	io.ReadCloser
	stall   time.Duration
	until   time.Time // when all of it has to be here; zero: whenever
	reading guard
	ended   atomic.Bool
}

// Read fails with os.ErrDeadlineExceeded when nothing comes in time.
func (b *boundedBody) Read(p []byte) (int, error) {
	limit := b.stall
	if !b.until.IsZero() {
		limit = min(limit, time.Until(b.until))
	}
	b.reading.begin(max(limit, 1))
	n, err := b.ReadCloser.Read(p)
	b.reading.end()
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

package exchange

import (
	"bufio"
	"context"
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
	// watchStallFactor times the stall timeout is how long the client of a watch may stall.
	watchStallFactor = 2
	// longRunningStall is how long the client of any other long-running request may stall. Users
	// pause the output of a command to read it.
	longRunningStall = time.Hour
	// unboundedWrite is the number of bytes since the last flush that are written without a timer,
	// because they fit into the buffers of net/http and do not wait for the client.
	unboundedWrite = 2 << 10
	// largeSend is the size in bytes from which all TLS records of an HTTP/1 write leave together.
	largeSend = 8 << 10
	// maxWrite is the largest number of bytes that are written under one deadline.
	maxWrite = 256 << 10
)

// LimitStall requires that the client of a long-running request keeps reading. The response is
// aborted when the client reads nothing for twice --stalled-client-timeout. Without LimitStall, the
// limit is an hour.
func LimitStall(w http.ResponseWriter) {
	if x := exchangeOf(w); x != nil { // otherwise no client is connected
		x.setStall(watchStallFactor * x.limits.stallTimeout)
		x.limitStallCalled = true
	}
}

// Exchange is a request and its response, with limits for a stalled client. The body must not pause
// for longer than the stall timeout. The response is aborted when its client reads nothing for that
// long: the window of its HTTP/2 stream stays closed, or its connection acknowledges nothing.
// Waiting for other streams of the connection does not count.
type Exchange struct {
	http.ResponseWriter
	limits           *Limits
	deadlines        deadlines     // nil if the writer has none; then nothing is limited
	proto            int           // major version of HTTP
	longRunning      bool          // a long-running request
	stallTimeout     time.Duration // how long the client may read nothing of the response
	h2Stream         h2Stream      // set for streams of package h2
	progress         progress      // used if h2Stream is nil
	body             *boundedBody  // nil if there is no body
	writeTimer       operationTimer
	slowWrite        *slowWriteHooks // nil unless OnSlowWrite was called
	http1Conn        Conn            // the connection of an HTTP/1 response; may be nil
	unflushed        int             // bytes of the response since the last flush
	limitStallCalled bool            // LimitStall was called
	hijacked         bool
	stallCounted     bool // the metrics include the stall of this response

	detached   *detachedWriter // the writer that outlives the handler; nil if DetachableWriter was not called
	isDetached bool            // the response outlives the handler
	endFuncs   []func(failure any)
}

// Conn is a connection below TLS.
type Conn interface {
	net.Conn
	// Cork holds written bytes until Uncork, so that they leave together.
	Cork()
	Uncork() error
	// Delivered returns the number of bytes that the client has acknowledged, and of those that it
	// has not acknowledged yet.
	Delivered() (acknowledged, outstanding int64)
}

// connKey is the context key of a Conn.
type connKey struct{}

// WithConn returns the context for the requests of a connection.
func WithConn(ctx context.Context, c Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connFrom(ctx context.Context) Conn {
	c, _ := ctx.Value(connKey{}).(Conn)
	return c
}

// h2Stream is implemented by the streams of package h2, which detect stalled clients themselves.
type h2Stream interface {
	SetStallTimeout(time.Duration)
	OnClose(func())
}

// deadlines is implemented by net/http's writers. A deadline in the past aborts at once.
type deadlines interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// stallMetrics counts aborted bodies and responses.
type stallMetrics struct{ bodies, responses prometheus.Counter }

// newStallMetrics registers the metrics unless registerer is nil.
func newStallMetrics(registerer prometheus.Registerer) (*stallMetrics, error) {
	counterVec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_stalled_clients_total",
		Help: "Number of requests aborted because the client did not send the body or did not read the response, by part.",
	}, []string{"part"})
	m := &stallMetrics{bodies: counterVec.WithLabelValues("body"), responses: counterVec.WithLabelValues("answer")}
	if registerer == nil {
		return m, nil
	}
	return m, registerer.Register(counterVec)
}

// pastDeadline interrupts reads or writes when it is set as the deadline.
var pastDeadline = time.Unix(1, 0)

// Limits holds the time limits for clients.
type Limits struct {
	// The parameters stall, body and response of NewLimits.
	stallTimeout, bodyTimeout, slowResponseAfter time.Duration
	metrics                                      *stallMetrics
}

// NewLimits returns limits; zero durations mean no limit. It registers the metrics unless r is nil.
// stall is how long a client may read nothing or send nothing while the server waits for it. body
// limits the time for a whole body. response is the time after which a response is aborted if its
// client reads slower than MinRate.
func NewLimits(stall, body, response time.Duration, r prometheus.Registerer) (*Limits, error) {
	m, err := newStallMetrics(r)
	return &Limits{stallTimeout: stall, bodyTimeout: body, slowResponseAfter: response, metrics: m}, err
}

// Start returns a writer and a request that enforce the limits. long means a long-running request,
// such as a watch. The caller must call Finish when the handler has returned.
func (l *Limits) Start(w http.ResponseWriter, r *http.Request, long bool) (*Exchange, *http.Request) {
	exchange := &Exchange{ResponseWriter: w, limits: l, proto: r.ProtoMajor, longRunning: long}
	exchange.h2Stream, _ = w.(h2Stream)
	exchange.deadlines, _ = w.(deadlines)
	if exchange.deadlines == nil {
		return exchange, r
	}
	exchange.writeTimer.checkLimit = exchange.checkWrite
	exchange.progress.conn = connFrom(r.Context())
	if exchange.proto == 1 {
		exchange.http1Conn = exchange.progress.conn
	}
	switch {
	case long:
		exchange.setStall(longRunningStall)
		_ = exchange.deadlines.SetWriteDeadline(time.Time{}) // the server's deadline is meant for short requests
	case exchange.h2Stream == nil:
		exchange.stallTimeout = ConnPatience * l.stallTimeout
		if l.slowResponseAfter > 0 {
			exchange.progress.minRateFrom = time.Now().Add(l.slowResponseAfter)
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return exchange, r
	}
	exchange.body = &boundedBody{ReadCloser: r.Body, stallTimeout: l.stallTimeout}
	exchange.body.readTimer.checkLimit = func(bool) time.Duration {
		l.metrics.bodies.Inc()
		_ = exchange.deadlines.SetReadDeadline(pastDeadline)
		return 0
	}
	if long {
		return exchange, r // the body lasts as long as the request
	}
	if l.bodyTimeout > 0 {
		exchange.body.deadline = time.Now().Add(l.bodyTimeout)
	}
	// The server inspects the body of its own request when it writes a response.
	bounded := new(http.Request)
	*bounded = *r
	bounded.Body = exchange.body
	return exchange, bounded
}

// setStall sets how long the client of a long-running request may read nothing of the response.
func (x *Exchange) setStall(d time.Duration) {
	x.stallTimeout = d
	if x.h2Stream != nil {
		x.h2Stream.SetStallTimeout(d)
	}
}

// startWrite starts the timer of a write. Streams of package h2 measure their clients themselves.
func (x *Exchange) startWrite() {
	if x.h2Stream != nil {
		x.writeTimer.start(0)
		return
	}
	x.writeTimer.start(x.progress.firstCheck(x.stallTimeout))
}

// checkWrite aborts a response whose client reads nothing. It returns the time until the next
// check, or 0 after the abort. first is true for the first check of a write.
func (x *Exchange) checkWrite(first bool) time.Duration {
	next := x.progress.nextCheck(first, x.stallTimeout)
	if next == 0 {
		x.abort()
	}
	return next
}

// abort ends a response that is stuck because the client does not read, or because net/http reads
// the rest of the body before it writes.
func (x *Exchange) abort() {
	x.limits.metrics.responses.Inc()
	_ = x.deadlines.SetWriteDeadline(pastDeadline)
	_ = x.deadlines.SetReadDeadline(pastDeadline)
	if x.progress.connStalled { // net/http's HTTP/2 would wait for its write
		_ = x.progress.conn.SetDeadline(pastDeadline)
	}
}

// Finish bounds what net/http does after the handler: it sends the last part of the response and
// reads the rest of the body.
func (x *Exchange) Finish() {
	if x.deadlines == nil {
		return
	}
	x.writeTimer.disable()
	if x.body != nil {
		x.body.readTimer.disable()
	}
	if x.hijacked {
		return
	}
	switch {
	case x.h2Stream != nil:
		if x.longRunning {
			x.h2Stream.SetStallTimeout(x.limits.stallTimeout)
		}
	case x.proto == 1:
		// net/http reads the rest of the body first.
		_ = x.deadlines.SetWriteDeadline(time.Now().Add(ConnPatience * x.limits.stallTimeout))
		if x.body != nil && !x.body.eofSeen.Load() {
			_ = x.deadlines.SetReadDeadline(time.Now().Add(x.limits.stallTimeout))
		}
	default: // the rest of the response waits for other streams
		_ = x.deadlines.SetWriteDeadline(time.Now().Add(max(ConnPatience*x.limits.stallTimeout, x.limits.slowResponseAfter)))
	}
}

// WhenSent calls f once the response is sent, or at once if the writer does not report that.
func (x *Exchange) WhenSent(f func()) {
	if x.h2Stream == nil {
		f()
		return
	}
	x.h2Stream.OnClose(f)
}

// WriteHeader implements http.ResponseWriter. Gin calls it on its own writer at the end of a
// handler that wrote nothing there. It is ignored once the response has a detached writer.
func (x *Exchange) WriteHeader(code int) {
	if x.detached == nil {
		x.ResponseWriter.WriteHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (x *Exchange) Write(data []byte) (written int, err error) {
	x.unflushed += len(data)
	if x.unflushed < unboundedWrite || x.deadlines == nil {
		return x.ResponseWriter.Write(data)
	}
	for {
		chunk := data[written:min(len(data), written+maxWrite)]
		x.startWrite()
		done, err := x.writePart(chunk)
		err = x.endWrite(err)
		written += done
		if err != nil || written == len(data) {
			return written, err
		}
	}
}

// writePart writes a part of the response. Over HTTP/1 all TLS records of a large part are sent in
// one write. Over HTTP/2, conns.pacedConn does that.
func (x *Exchange) writePart(part []byte) (int, error) {
	if x.http1Conn == nil || len(part) < largeSend {
		return x.ResponseWriter.Write(part)
	}
	x.http1Conn.Cork()
	n, err := x.ResponseWriter.Write(part)
	if uncorkErr := x.http1Conn.Uncork(); err == nil {
		err = uncorkErr
	}
	return n, err
}

// Flush implements http.Flusher.
func (x *Exchange) Flush() { _ = x.FlushError() }

// FlushError is used by http.ResponseController.
func (x *Exchange) FlushError() error {
	x.unflushed = 0
	if x.deadlines == nil {
		return http.NewResponseController(x.ResponseWriter).Flush()
	}
	x.startWrite()
	if f, ok := x.ResponseWriter.(interface{ FlushError() error }); ok {
		return x.endWrite(f.FlushError())
	}
	return x.endWrite(http.NewResponseController(x.ResponseWriter).Flush())
}

// Send implements Sender.
func (x *Exchange) Send(data []byte) error {
	below, ok := x.ResponseWriter.(Sender)
	if !ok || x.deadlines == nil || x.unflushed > 0 || len(data) > maxWrite {
		if _, err := x.Write(data); err != nil {
			return err
		}
		return x.FlushError()
	}
	x.startWrite()
	return x.endWrite(below.Send(data))
}

// endWrite stops the timer of a write and returns the error of the write. If the write was
// suspended, it waits until the handler may resume.
func (x *Exchange) endWrite(err error) error {
	if errors.Is(err, h2.ErrStalled) && !x.stallCounted {
		x.stallCounted = true
		x.limits.metrics.responses.Inc()
	}
	if paused := x.writeTimer.stop(); paused && err == nil {
		return x.slowWrite.resume()
	}
	return err
}

// Hijack implements http.Hijacker. If LimitStall was called, writes to the connection stay bounded.
// Otherwise the new owner of the connection is responsible.
func (x *Exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, readWriter, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked = true
	if x.limitStallCalled {
		hijacked := &hijackedConn{
			Conn:         conn,
			stallTimeout: x.stallTimeout,
			slowWrite:    x.slowWrite,
			progress:     progress{conn: x.progress.conn},
		}
		hijacked.writeTimer.checkLimit = hijacked.checkWrite
		hijacked.writeTimer.suspend = x.slowWrite.suspendOrAbort(hijacked.abort)
		conn = hijacked
		readWriter.Writer.Reset(conn)
	}
	return conn, readWriter, nil
}

// Unwrap is used by http.ResponseController.
func (x *Exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// boundedBody is a request body whose reads fail when the client sends nothing for the stall
// timeout.
type boundedBody struct {
	io.ReadCloser
	stallTimeout time.Duration
	deadline     time.Time // when the whole body must have arrived; zero for no limit
	readTimer    operationTimer
	eofSeen      atomic.Bool
}

// Read fails with os.ErrDeadlineExceeded if nothing arrives in time.
func (b *boundedBody) Read(data []byte) (int, error) {
	limit := b.stallTimeout
	if !b.deadline.IsZero() {
		limit = min(limit, time.Until(b.deadline))
	}
	b.readTimer.start(max(limit, 1))
	n, err := b.ReadCloser.Read(data)
	b.readTimer.stop()
	if err == io.EOF {
		b.eofSeen.Store(true)
	}
	return n, err
}

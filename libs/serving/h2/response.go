package h2

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
)

const (
	// gathered is how many bytes of an answer gather before they are sent.
	gathered = 16 << 10
	// counted is up to which size the server counts an answer whose handler has not: as net/http
	// does.
	counted = 4096
)

var answerBuffers = sync.Pool{New: func() any { b := make([]byte, 0, gathered); return &b }}

// response is the http.ResponseWriter of a stream. It also has what http.ResponseController asks for.
// A goroutine of the handler may write at any time, also after the handler has returned: then it gets
// an error.
type response struct {
	stream *stream
	head   bool // of a HEAD request: it ends with its header fields, whatever is written

	mu     sync.Mutex // held while something is sent; conn.mu is taken under it
	header http.Header

	fields   []hpack.HeaderField // until they are sent
	trailers []string            // names
	status   int                 // 0 until WriteHeader
	declared int64               // bytes of the body; -1 when nobody said
	written  int64
	typed    bool // Content-Type or Content-Encoding is set
	dated    bool
	sent     bool // the fields
	ended    bool
	gone     bool // the handler has returned
	data     []byte
	buffer   *[]byte                     // that of data
	more     func(end func(failure any)) // when the handler has returned
}

func (a *response) begin(method string) {
	a.header, a.declared, a.head = make(http.Header, 8), -1, method == http.MethodHead
}

// Header implements http.ResponseWriter.
func (a *response) Header() http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.header == nil || a.gone {
		a.header = http.Header{}
	}
	return a.header
}

// shed gives up the fields that have been sent. Trailers that were not declared are those that are set
// from now on.
func (a *response) shed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent && a.trailers == nil {
		a.header = nil
	}
}

// WriteHeader implements http.ResponseWriter.
func (a *response) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writeHeader(status)
}

func (a *response) writeHeader(status int) {
	switch {
	case a.status != 0 || a.gone:
		return
	case status < 100 || status > 999:
		panic("invalid status " + strconv.Itoa(status))
	case status < 200:
		a.inform(status)
		return
	}
	a.status = status
	a.fields = append(make([]hpack.HeaderField, 0, len(a.header)+4), hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
	for name, values := range a.header {
		a.set(name, values)
	}
}

// set takes header fields over into the answer.
func (a *response) set(name string, values []string) {
	switch name {
	case "Connection":
		if len(values) > 0 && values[0] == "close" {
			a.stream.conn.goAway()
		}
		return
	case "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		return
	case "Trailer":
		for name := range declared(values) {
			a.trailers = append(a.trailers, name)
		}
	case "Content-Length":
		if n, err := strconv.ParseUint(strings.Join(values, ","), 10, 63); err == nil {
			a.declared = int64(n)
			a.fields = append(a.fields, hpack.HeaderField{Name: "content-length", Value: values[0], Sensitive: true})
		}
		return
	case "Content-Type":
		a.typed = true
	case "Content-Encoding":
		a.typed = a.typed || len(values) > 0 && values[0] != ""
	case "Date":
		a.dated = true
	}
	a.fields = appendFields(a.fields, name, values)
}

// inform sends an answer that another one follows.
func (a *response) inform(status int) {
	fields := []hpack.HeaderField{{Name: ":status", Value: strconv.Itoa(status)}}
	for name, values := range a.header {
		switch name {
		case "Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		default:
			fields = appendFields(fields, name, values)
		}
	}
	_ = a.stream.send(part{fields: fields}) // or the answer fails
}

// goOn has the client send its body, if it waits to be asked.
func (s *stream) goOn() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.begun.Load() || s.failed() != nil {
		return
	}
	c.appendHeaders(s, []hpack.HeaderField{{Name: ":status", Value: "100"}}, false)
	c.flushAsync() // A goroutine other than that of the response may read the body.
}

// mayHaveBody tells whether the status allows a body.
func (a *response) mayHaveBody() bool {
	return a.status != http.StatusNoContent && a.status != http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (a *response) Write(p []byte) (int, error) { return write(a, p) }

// WriteString implements io.StringWriter.
func (a *response) WriteString(p string) (int, error) { return write(a, p) }

func write[T []byte | string](a *response, p T) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return 0, errEnded
	}
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if !a.mayHaveBody() {
		return 0, http.ErrBodyNotAllowed
	}
	if a.declared >= 0 && a.written+int64(len(p)) > a.declared {
		return 0, http.ErrContentLength
	}
	a.written += int64(len(p))
	if a.head && a.ended {
		return len(p), nil
	}
	if len(a.data)+len(p) <= gathered {
		if a.buffer == nil {
			a.buffer = answerBuffers.Get().(*[]byte)
			a.data = (*a.buffer)[:0]
		}
		a.data = append(a.data, p...)
		return len(p), nil
	}
	if len(a.data) > 0 {
		if err := a.send(a.data, later, false); err != nil {
			return 0, err
		}
		a.data = a.data[:0]
	}
	a.free()
	// An answer whose length is known has no trailers that were not declared.
	if err := a.send([]byte(p), now, a.written == a.declared && a.trailers == nil); err != nil {
		return 0, err
	}
	return len(p), nil
}

// free gives the buffer back, whose data have been sent.
func (a *response) free() {
	if a.buffer != nil {
		*a.buffer = a.data[:0]
		answerBuffers.Put(a.buffer)
		a.buffer, a.data = nil, nil
	}
}

// send sends what has not been sent of the fields, and data.
func (a *response) send(data []byte, when urgency, end bool) error {
	if a.ended {
		return errEnded
	}
	p := part{when: when, end: end || a.head}
	if !a.head {
		p.data = data
	}
	if a.sent && len(p.data) == 0 && !end {
		return nil
	}
	if !a.sent {
		a.complete(data)
		a.stream.begun.Store(true)
		p.fields = a.fields
	}
	if a.ended = p.end; end && !a.head {
		p.trailers = a.trailing()
	}
	a.sent, a.fields = true, nil
	return a.stream.send(p)
}

// complete adds the fields that the server knows better than the handler, with the first data.
func (a *response) complete(data []byte) {
	if !a.typed && len(data) > 0 {
		a.fields = append(a.fields, hpack.HeaderField{Name: "content-type", Value: http.DetectContentType(data)})
	}
	if !a.dated {
		a.fields = append(a.fields, hpack.HeaderField{Name: "date", Value: a.stream.conn.server.date()})
	}
}

// date is the time as a field of an answer.
func (s *Server) date() string {
	now := time.Now()
	if d := s.dated.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dated{second: now.Unix(), text: now.UTC().Format(http.TimeFormat)}
	s.dated.Store(d)
	return d.text
}

type dated struct {
	second int64
	text   string
}

// trailing are the trailers, or nil.
func (a *response) trailing() []hpack.HeaderField {
	var fields []hpack.HeaderField
	for _, name := range a.trailers {
		fields = appendFields(fields, name, a.header[name])
	}
	for name, values := range a.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			fields = appendFields(fields, name, values)
		}
	}
	return fields
}

// Flush implements http.Flusher.
func (a *response) Flush() { _ = a.FlushError() }

// FlushError serves http.ResponseController. What is flushed leaves once others of the connection
// have had time to add theirs.
func (a *response) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.flush()
}

func (a *response) flush() error {
	if a.gone {
		return errEnded
	}
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if a.head && a.ended {
		return nil
	}
	err := a.send(a.data, soon, false)
	a.data = a.data[:0]
	a.free()
	return err
}

// Send is Write and FlushError without a buffer in between, once the fields have been sent.
func (a *response) Send(p []byte) error {
	a.mu.Lock()
	if direct := !a.gone && a.sent && len(a.data) == 0 && a.declared < 0 && a.mayHaveBody() && !a.head; direct {
		defer a.mu.Unlock()
		a.written += int64(len(p))
		return a.send(p, soon, false)
	}
	a.mu.Unlock()
	if _, err := a.Write(p); err != nil {
		return err
	}
	return a.FlushError()
}

// finish sends what is left, and the end.
func (a *response) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if a.ended {
		return
	}
	if !a.sent && a.declared < 0 && a.mayHaveBody() && len(a.data) <= counted && (len(a.data) > 0 || !a.head) && a.written == int64(len(a.data)) {
		a.fields = append(a.fields, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(len(a.data)), Sensitive: true})
	}
	whole := a.declared <= a.written || a.head || !a.mayHaveBody()
	if err := a.send(a.data, now, whole); err == nil && !whole {
		a.stream.abort()
	}
}

// Last has more called when the handler has returned, unless it is nil. The answer ends when end is
// called, once, by whatever goroutine; what it failed with is nil for nothing.
func (a *response) Last(more func(end func(failure any))) { a.more = more }

// OnClose has f called once the stream is over: its end was given to the system, or it was reset. f
// must not block, nor use the response. The caller is the handler.
func (a *response) OnClose(f func()) { a.stream.addOnClose(f) }

// SetStallTimeout changes how long the client may leave the window of the stream closed; 0 is for
// ever.
func (a *response) SetStallTimeout(d time.Duration) { a.stream.setStallTimeout(d) }

// over is called when nothing is asked of the answer any more.
func (a *response) over() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone, a.header = true, nil
	a.free()
}

// SetReadDeadline serves http.ResponseController.
func (a *response) SetReadDeadline(t time.Time) error {
	a.stream.setReadDeadline(t)
	return nil
}

// SetWriteDeadline serves http.ResponseController.
func (a *response) SetWriteDeadline(t time.Time) error {
	a.stream.setDeadline(t)
	return nil
}

// EnableFullDuplex serves http.ResponseController: a body can always be read while an answer is
// written.
func (a *response) EnableFullDuplex() error { return nil }

var _ interface {
	http.ResponseWriter
	http.Flusher
	io.StringWriter
} = (*response)(nil)

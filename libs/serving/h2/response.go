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
	// responseBufferSize is the number of bytes of a response that are buffered before they are
	// sent.
	responseBufferSize = 16 << 10
	// autoLengthLimit is the largest response that gets a Content-Length from the server, as in
	// net/http.
	autoLengthLimit = 4096
)

var responseBuffers = sync.Pool{New: func() any { b := make([]byte, 0, responseBufferSize); return &b }}

// response is the http.ResponseWriter of a stream. It implements the methods of
// http.ResponseController. Goroutines of the handler may write at any time. After the handler has
// returned, they get an error.
type response struct {
	stream *stream
	isHead bool // the request is a HEAD: the response has no body

	mu     sync.Mutex // held during sends; conn.mu is acquired under it
	header http.Header

	fields         []hpack.HeaderField // until they are sent
	trailers       []string            // names
	status         int                 // 0 until WriteHeader
	declared       int64               // bytes of the body; -1 if unknown
	written        int64
	hasContentType bool // Content-Type or Content-Encoding is set
	hasDate        bool
	headerSent     bool // the header fields were sent
	ended          bool
	handlerDone    bool // the handler has returned
	data           []byte
	buffer         *[]byte                     // the pooled buffer of data
	detached       func(end func(failure any)) // called when the handler has returned
}

func (a *response) init(method string) {
	a.header, a.declared, a.isHead = make(http.Header, 8), -1, method == http.MethodHead
}

// Header implements http.ResponseWriter.
func (a *response) Header() http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.header == nil || a.handlerDone {
		a.header = http.Header{}
	}
	return a.header
}

// releaseHeader releases the sent header fields. Fields that are set from then on are undeclared
// trailers.
func (a *response) releaseHeader() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.headerSent && a.trailers == nil {
		a.header = nil
	}
}

// WriteHeader implements http.ResponseWriter.
func (a *response) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writeHeader(status)
}

// writeHeader sets the status of the response. Informational statuses are sent at once.
func (a *response) writeHeader(status int) {
	switch {
	case a.status != 0 || a.handlerDone:
		return
	case status < 100 || status > 999:
		panic("invalid status " + strconv.Itoa(status))
	case status < 200:
		a.sendInformational(status)
		return
	}
	a.status = status
	a.fields = append(make([]hpack.HeaderField, 0, len(a.header)+4), hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
	for name, values := range a.header {
		a.addHeader(name, values)
	}
}

// addHeader adds a header field to the response.
func (a *response) addHeader(name string, values []string) {
	switch name {
	case "Connection":
		if len(values) > 0 && values[0] == "close" {
			a.stream.conn.goAway()
		}
		return
	case "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		return
	case "Trailer":
		for name := range declaredTrailers(values) {
			a.trailers = append(a.trailers, name)
		}
	case "Content-Length":
		if n, err := strconv.ParseUint(strings.Join(values, ","), 10, 63); err == nil {
			a.declared = int64(n)
			a.fields = append(a.fields, hpack.HeaderField{Name: "content-length", Value: values[0], Sensitive: true})
		}
		return
	case "Content-Type":
		a.hasContentType = true
	case "Content-Encoding":
		a.hasContentType = a.hasContentType || len(values) > 0 && values[0] != ""
	case "Date":
		a.hasDate = true
	}
	a.fields = appendFields(a.fields, name, values)
}

// sendInformational sends a 1xx response.
func (a *response) sendInformational(status int) {
	fields := []hpack.HeaderField{{Name: ":status", Value: strconv.Itoa(status)}}
	for name, values := range a.header {
		switch name {
		case "Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		default:
			fields = appendFields(fields, name, values)
		}
	}
	_ = a.stream.send(part{fields: fields}) // an error also fails the final response
}

// sendContinue sends a 100 response if the response has not begun.
func (s *stream) sendContinue() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.responseBegun.Load() || s.sendError() != nil {
		return
	}
	c.appendHeaders(s, []hpack.HeaderField{{Name: ":status", Value: "100"}}, false)
	c.flushAsync() // A goroutine other than that of the response may read the body.
}

// mayHaveBody reports whether the status allows a body.
func (a *response) mayHaveBody() bool {
	return a.status != http.StatusNoContent && a.status != http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (a *response) Write(p []byte) (int, error) { return write(a, p) }

// WriteString implements io.StringWriter.
func (a *response) WriteString(p string) (int, error) { return write(a, p) }

// write appends to the response and sends full buffers.
func write[T []byte | string](a *response, p T) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.handlerDone {
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
	if a.isHead && a.ended {
		return len(p), nil
	}
	if len(a.data)+len(p) <= responseBufferSize {
		if a.buffer == nil {
			a.buffer = responseBuffers.Get().(*[]byte)
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
	a.freeBuffer()
	// The length is known, so undeclared trailers are impossible.
	if err := a.send([]byte(p), now, a.written == a.declared && a.trailers == nil); err != nil {
		return 0, err
	}
	return len(p), nil
}

// freeBuffer returns the empty buffer to the pool.
func (a *response) freeBuffer() {
	if a.buffer != nil {
		*a.buffer = a.data[:0]
		responseBuffers.Put(a.buffer)
		a.buffer = nil
		a.data = nil
	}
}

// send sends the unsent header fields and data.
func (a *response) send(data []byte, when urgency, end bool) error {
	if a.ended {
		return errEnded
	}
	p := part{when: when, end: end || a.isHead}
	if !a.isHead {
		p.data = data
	}
	if a.headerSent && len(p.data) == 0 && !end {
		return nil
	}
	if !a.headerSent {
		a.addDefaults(data)
		a.stream.responseBegun.Store(true)
		p.fields = a.fields
	}
	a.ended = p.end
	if end && !a.isHead {
		p.trailers = a.trailerFields()
	}
	a.headerSent = true
	a.fields = nil
	return a.stream.send(p)
}

// addDefaults adds Content-Type and Date if the handler did not.
func (a *response) addDefaults(data []byte) {
	if !a.hasContentType && len(data) > 0 {
		a.fields = append(a.fields, hpack.HeaderField{Name: "content-type", Value: http.DetectContentType(data)})
	}
	if !a.hasDate {
		a.fields = append(a.fields, hpack.HeaderField{Name: "date", Value: a.stream.conn.server.dateHeader()})
	}
}

// dateHeader returns the current value of the Date field.
func (s *Server) dateHeader() string {
	now := time.Now()
	if d := s.cachedDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dateValue{second: now.Unix(), text: now.UTC().Format(http.TimeFormat)}
	s.cachedDate.Store(d)
	return d.text
}

// dateValue is the Date header of a second.
type dateValue struct {
	second int64
	text   string
}

// trailerFields returns the trailers, or nil.
func (a *response) trailerFields() []hpack.HeaderField {
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

// FlushError is used by http.ResponseController. The flush first yields to other streams of the
// connection, so that their data leaves in the same write.
func (a *response) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.flush()
}

func (a *response) flush() error {
	if a.handlerDone {
		return errEnded
	}
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if a.isHead && a.ended {
		return nil
	}
	err := a.send(a.data, soon, false)
	a.data = a.data[:0]
	a.freeBuffer()
	return err
}

// Send is Write and FlushError without the buffer once the header fields were sent.
func (a *response) Send(p []byte) error {
	a.mu.Lock()
	if direct := !a.handlerDone && a.headerSent && len(a.data) == 0 && a.declared < 0 && a.mayHaveBody() && !a.isHead; direct {
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

// finish sends the rest of the response and its end.
func (a *response) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if a.ended {
		return
	}
	if !a.headerSent && a.declared < 0 && a.mayHaveBody() && len(a.data) <= autoLengthLimit && (len(a.data) > 0 || !a.isHead) && a.written == int64(len(a.data)) {
		a.fields = append(a.fields, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(len(a.data)), Sensitive: true})
	}
	whole := a.declared <= a.written || a.isHead || !a.mayHaveBody()
	if err := a.send(a.data, now, whole); err == nil && !whole {
		a.stream.abort()
	}
}

// Detach schedules more for the return of the handler; nil cancels it. The response ends when end
// is called, once, from any goroutine. failure is nil, or the reason why the response failed.
func (a *response) Detach(more func(end func(failure any))) { a.detached = more }

// OnClose calls f once the stream is closed: its end was written, or it was reset. f must not
// block, and must not use the response. Only the handler may call OnClose.
func (a *response) OnClose(f func()) { a.stream.addOnClose(f) }

// SetStallTimeout changes how long the client may leave the window of the stream closed; 0 means no
// limit.
func (a *response) SetStallTimeout(d time.Duration) { a.stream.setStallTimeout(d) }

// close makes later calls fail and releases the buffer.
func (a *response) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handlerDone = true
	a.header = nil
	a.freeBuffer()
}

// SetReadDeadline is used by http.ResponseController.
func (a *response) SetReadDeadline(t time.Time) error {
	a.stream.setReadDeadline(t)
	return nil
}

// SetWriteDeadline is used by http.ResponseController.
func (a *response) SetWriteDeadline(t time.Time) error {
	a.stream.setDeadline(t)
	return nil
}

// EnableFullDuplex is used by http.ResponseController. Bodies can always be read while a response
// is written.
func (a *response) EnableFullDuplex() error { return nil }

var _ interface {
	http.ResponseWriter
	http.Flusher
	io.StringWriter
} = (*response)(nil)

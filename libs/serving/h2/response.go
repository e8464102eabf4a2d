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

	fields         []hpack.HeaderField // unsent header fields, with :status
	trailers       []string            // names of declared trailers
	status         int                 // 0 until WriteHeader
	declaredLength int64               // declared length of the body in bytes; -1 if unknown
	written        int64               // bytes of the body that the handler has written
	hasContentType bool                // Content-Type or Content-Encoding is set
	hasDate        bool
	headerSent     bool                        // the header fields were sent
	ended          bool                        // END_STREAM was sent or queued
	handlerDone    bool                        // the handler has returned
	data           []byte                      // unsent data, in buffer
	buffer         *[]byte                     // from responseBuffers, or nil
	continuation   func(end func(failure any)) // called when the handler has returned; nil if the response ends then
}

// init prepares the response to a request with a method.
func (r *response) init(method string) {
	r.header = make(http.Header, 8)
	r.declaredLength = -1
	r.isHead = method == http.MethodHead
}

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.header == nil || r.handlerDone {
		r.header = http.Header{}
	}
	return r.header
}

// releaseHeader releases the sent header fields. Fields that are set from then on are undeclared
// trailers.
func (r *response) releaseHeader() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.headerSent && r.trailers == nil {
		r.header = nil
	}
}

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeaderLocked(status)
}

// writeHeaderLocked sets the status of the response. Informational statuses are sent at once.
func (r *response) writeHeaderLocked(status int) {
	switch {
	case r.status != 0 || r.handlerDone:
		return
	case status < 100 || status > 999:
		panic("invalid status " + strconv.Itoa(status))
	case status < 200:
		r.sendInformational(status)
		return
	}
	r.status = status
	r.fields = append(make([]hpack.HeaderField, 0, len(r.header)+4), hpack.HeaderField{
		Name:  ":status",
		Value: strconv.Itoa(status),
	})
	for name, values := range r.header {
		r.addHeader(name, values)
	}
}

// addHeader adds a header field to the response.
func (r *response) addHeader(name string, values []string) {
	switch name {
	case "Connection":
		if len(values) > 0 && values[0] == "close" {
			r.stream.conn.goAway()
		}
		return
	case "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		return
	case "Trailer":
		for name := range declaredTrailers(values) {
			r.trailers = append(r.trailers, name)
		}
	case "Content-Length":
		if n, err := strconv.ParseUint(strings.Join(values, ","), 10, 63); err == nil {
			r.declaredLength = int64(n)
			r.fields = append(r.fields, hpack.HeaderField{Name: "content-length", Value: values[0], Sensitive: true})
		}
		return
	case "Content-Type":
		r.hasContentType = true
	case "Content-Encoding":
		r.hasContentType = r.hasContentType || len(values) > 0 && values[0] != ""
	case "Date":
		r.hasDate = true
	}
	r.fields = appendFields(r.fields, name, values)
}

// sendInformational sends a 1xx response.
func (r *response) sendInformational(status int) {
	fields := []hpack.HeaderField{{Name: ":status", Value: strconv.Itoa(status)}}
	for name, values := range r.header {
		switch name {
		case "Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		default:
			fields = appendFields(fields, name, values)
		}
	}
	_ = r.stream.send(part{fields: fields}) // an error also fails the final response
}

// sendContinue sends a 100 response if the response has not begun.
func (s *stream) sendContinue() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.responseStarted.Load() || s.sendError() != nil {
		return
	}
	c.queueHeaders(s, []hpack.HeaderField{{Name: ":status", Value: "100"}}, false)
	c.flushAsync() // must not block: the body may be read by another goroutine than the response
}

// mayHaveBody reports whether the status allows a body.
func (r *response) mayHaveBody() bool {
	return r.status != http.StatusNoContent && r.status != http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (r *response) Write(p []byte) (int, error) { return writeBody(r, p) }

// WriteString implements io.StringWriter.
func (r *response) WriteString(p string) (int, error) { return writeBody(r, p) }

// writeBody appends p to the response buffer. If p does not fit, it sends the buffer and p.
func writeBody[T []byte | string](r *response, p T) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handlerDone {
		return 0, errResponseEnded
	}
	if r.status == 0 {
		r.writeHeaderLocked(http.StatusOK)
	}
	if !r.mayHaveBody() {
		return 0, http.ErrBodyNotAllowed
	}
	if r.declaredLength >= 0 && r.written+int64(len(p)) > r.declaredLength {
		return 0, http.ErrContentLength
	}
	r.written += int64(len(p))
	if r.isHead && r.ended {
		return len(p), nil
	}
	if len(r.data)+len(p) <= responseBufferSize {
		if r.buffer == nil {
			r.buffer = responseBuffers.Get().(*[]byte)
			r.data = (*r.buffer)[:0]
		}
		r.data = append(r.data, p...)
		return len(p), nil
	}
	if len(r.data) > 0 {
		if err := r.sendPart(r.data, writeWithNextPart, false); err != nil {
			return 0, err
		}
		r.data = r.data[:0]
	}
	r.freeBuffer()
	// The length is known, so undeclared trailers are impossible.
	if err := r.sendPart([]byte(p), writeNow, r.written == r.declaredLength && r.trailers == nil); err != nil {
		return 0, err
	}
	return len(p), nil
}

// freeBuffer returns the empty buffer to the pool.
func (r *response) freeBuffer() {
	if r.buffer != nil {
		*r.buffer = r.data[:0]
		responseBuffers.Put(r.buffer)
		r.buffer = nil
		r.data = nil
	}
}

// sendPart sends the unsent header fields, data and, at the end, the trailers. The caller holds
// r.mu.
func (r *response) sendPart(data []byte, when urgency, end bool) error {
	if r.ended {
		return errResponseEnded
	}
	p := part{when: when, end: end || r.isHead}
	if !r.isHead {
		p.data = data
	}
	if r.headerSent && len(p.data) == 0 && !end {
		return nil
	}
	if !r.headerSent {
		r.addDefaults(data)
		r.stream.responseStarted.Store(true)
		p.fields = r.fields
	}
	r.ended = p.end
	if end && !r.isHead {
		p.trailers = r.trailerFields()
	}
	r.headerSent = true
	r.fields = nil
	return r.stream.send(p)
}

// addDefaults adds Content-Type and Date if the handler did not.
func (r *response) addDefaults(data []byte) {
	if !r.hasContentType && len(data) > 0 {
		r.fields = append(r.fields, hpack.HeaderField{Name: "content-type", Value: http.DetectContentType(data)})
	}
	if !r.hasDate {
		r.fields = append(r.fields, hpack.HeaderField{Name: "date", Value: r.stream.conn.server.dateHeader()})
	}
}

// trailerFields returns the trailers, or nil.
func (r *response) trailerFields() []hpack.HeaderField {
	var fields []hpack.HeaderField
	for _, name := range r.trailers {
		fields = appendFields(fields, name, r.header[name])
	}
	for name, values := range r.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			fields = appendFields(fields, name, values)
		}
	}
	return fields
}

// Flush implements http.Flusher.
func (r *response) Flush() { _ = r.FlushError() }

// FlushError is used by http.ResponseController. It yields to the other streams of the connection
// before it writes, so that their data leaves in the same write.
func (r *response) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flushLocked()
}

// flushLocked sends the buffered data and the unsent header fields. The caller holds r.mu.
func (r *response) flushLocked() error {
	if r.handlerDone {
		return errResponseEnded
	}
	if r.status == 0 {
		r.writeHeaderLocked(http.StatusOK)
	}
	if r.isHead && r.ended {
		return nil
	}
	err := r.sendPart(r.data, writeAfterYield, false)
	r.data = r.data[:0]
	r.freeBuffer()
	return err
}

// Send does what Write and FlushError do. Once the header fields were sent, it sends data without
// copying it to the response buffer.
func (r *response) Send(data []byte) error {
	r.mu.Lock()
	isUnbuffered := r.headerSent && len(r.data) == 0 && r.declaredLength < 0
	if isUnbuffered && !r.handlerDone && r.mayHaveBody() && !r.isHead {
		defer r.mu.Unlock()
		r.written += int64(len(data))
		return r.sendPart(data, writeAfterYield, false)
	}
	r.mu.Unlock()
	if _, err := r.Write(data); err != nil {
		return err
	}
	return r.FlushError()
}

// finish sends the unsent part of the response and END_STREAM. It resets the stream if the handler
// wrote less than the declared length.
func (r *response) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.writeHeaderLocked(http.StatusOK)
	}
	if r.ended {
		return
	}
	if r.needsLength() {
		r.fields = append(r.fields, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(len(r.data)), Sensitive: true})
	}
	complete := r.declaredLength <= r.written || r.isHead || !r.mayHaveBody()
	if err := r.sendPart(r.data, writeNow, complete); err == nil && !complete {
		r.stream.abort()
	}
}

// needsLength reports whether the server adds a Content-Length: the complete response is in the
// buffer and short. The length of a response to HEAD is unknown if nothing was written.
func (r *response) needsLength() bool {
	if r.headerSent || r.declaredLength >= 0 || !r.mayHaveBody() || len(r.data) > autoLengthLimit {
		return false
	}
	if r.written != int64(len(r.data)) {
		return false
	}
	return len(r.data) > 0 || !r.isHead
}

// Detach schedules a call of more for when the handler has returned; nil cancels it. The response
// then continues until end is called, once, from any goroutine. failure is nil, or the reason why
// the response failed.
func (r *response) Detach(more func(end func(failure any))) { r.continuation = more }

// OnClose calls f once the stream is closed: its end was written, or it was reset. f must not
// block, and must not use the response. Only the handler may call OnClose.
func (r *response) OnClose(f func()) { r.stream.addOnClose(f) }

// SetStallTimeout changes how long the client may leave the window of the stream closed; 0 means no
// limit.
func (r *response) SetStallTimeout(d time.Duration) { r.stream.setStallTimeout(d) }

// markHandlerDone makes later writes of the handler fail, and releases the buffer.
func (r *response) markHandlerDone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlerDone = true
	r.header = nil
	r.freeBuffer()
}

// SetReadDeadline is used by http.ResponseController.
func (r *response) SetReadDeadline(t time.Time) error {
	r.stream.setReadDeadline(t)
	return nil
}

// SetWriteDeadline is used by http.ResponseController.
func (r *response) SetWriteDeadline(t time.Time) error {
	r.stream.setDeadline(t)
	return nil
}

// EnableFullDuplex is used by http.ResponseController. Bodies can always be read while a response
// is written.
func (r *response) EnableFullDuplex() error { return nil }

var _ interface {
	http.ResponseWriter
	http.Flusher
	io.StringWriter
} = (*response)(nil)

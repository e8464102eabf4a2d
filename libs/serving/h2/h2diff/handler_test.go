package h2diff_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// observer records what handlers see of requests.
type observer struct {
	mu    sync.Mutex
	lines []string
	gate  chan struct{} // handlers such as /wait block until it is closed
}

func newObserver() *observer { return &observer{gate: make(chan struct{})} }

// release unblocks the handlers that wait for the gate.
func (o *observer) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.gate)
	o.gate = make(chan struct{})
}

func (o *observer) log(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, fmt.Sprintf(format, args...))
}

// takeLines returns the lines since the previous call in alphabetical order.
func (o *observer) takeLines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := o.lines
	o.lines = nil
	slices.Sort(lines)
	return lines
}

// pattern returns n bytes that differ from stream to stream.
func pattern(count, salt int) []byte {
	bytes := make([]byte, count)
	for i := range bytes {
		bytes[i] = byte('a' + (i*7+i/256+salt)%26)
	}
	return bytes
}

func queryInt(r *http.Request, name string) int {
	n, _ := strconv.Atoi(r.URL.Query().Get(name))
	return n
}

// ServeHTTP serves the path "/NAME?…" with the handler NAME.
func (o *observer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fields := make([]string, 0, len(r.Header))
	for name, values := range r.Header {
		fields = append(fields, fmt.Sprintf("%s=%q", name, values))
	}
	slices.Sort(fields)
	o.log("request %s %s uri=%q host=%q length=%d trailer=%d %s", r.Method, r.URL, r.RequestURI, r.Host,
		r.ContentLength, len(r.Trailer), strings.Join(fields, " "))
	switch handler, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); handler {
	case "hello":
		_, _ = io.WriteString(w, "hello")
	case "large":
		_, err := w.Write(pattern(queryInt(r, "n"), 0))
		o.log("wrote %s, error %t", r.URL, err != nil)
	case "parts":
		o.parts(w, r)
	case "read":
		o.read(w, r)
	case "some": // reads a part of the body
		n, err := io.ReadFull(r.Body, make([]byte, queryInt(r, "n")))
		o.log("read %d, error %t", n, err != nil)
		_, _ = io.WriteString(w, "some")
	case "echo":
		n, err := io.Copy(flushing{w}, r.Body)
		o.log("copied %d, error %t", n, err != nil)
	case "wait":
		o.wait(r)
		_, _ = io.WriteString(w, "waited")
	case "begun": // response without an end yet
		_, _ = io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		o.wait(r)
		_, err := io.WriteString(w, "ended")
		o.log("wrote the end, error %t", err != nil)
	case "close": // closes the body before it has arrived
		_ = r.Body.Close()
		_, _ = io.WriteString(w, "closed")
	default:
		o.respond(handler, w, r)
	}
}

// flushing flushes each write, because the servers have buffers of different sizes.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if err == nil {
		err = http.NewResponseController(f.ResponseWriter).Flush()
	}
	return n, err
}

// wait waits for the gate, or for the end of the request.
func (o *observer) wait(r *http.Request) {
	o.mu.Lock()
	gate := o.gate
	o.mu.Unlock()
	select {
	case <-gate:
	case <-r.Context().Done():
		o.log("canceled %s", r.URL)
	}
}

// parts flushes after each part.
func (o *observer) parts(w http.ResponseWriter, r *http.Request) {
	for i := range queryInt(r, "parts") {
		_, err := w.Write(pattern(queryInt(r, "n"), i))
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			o.log("part %d failed", i)
			return
		}
	}
}

// read reads the body in parts.
func (o *observer) read(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var trailers []string
	for name, values := range r.Trailer {
		trailers = append(trailers, fmt.Sprintf("%s=%q", name, values))
	}
	slices.Sort(trailers)
	o.log("body of %d bytes %.20q, error %t, trailers %v", len(body), body, err != nil, trailers)
	_, _ = fmt.Fprintf(w, "read %d", len(body))
}

// respond implements the forms of responses.
func (o *observer) respond(handler string, w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	switch handler {
	case "empty":
	case "status":
		w.WriteHeader(queryInt(r, "code"))
		_, err := io.WriteString(w, "body")
		o.log("wrote a body, error %t", err != nil)
	case "declared":
		header.Set("Content-Length", r.URL.Query().Get("length"))
		_, err := w.Write(pattern(queryInt(r, "n"), 0))
		o.log("wrote a body, error %t", err != nil)
	case "trailers":
		header.Set("Trailer", "X-Declared, X-Unset")
		_, _ = w.Write(pattern(queryInt(r, "n"), 0))
		header.Set("X-Declared", "1")
		header.Set(http.TrailerPrefix+"X-Undeclared", "2")
		header.Set("X-Late", "3")
	case "fields":
		header["X-Valid"] = []string{"1", "2"}
		header["X-Value"] = []string{"a\nb"}
		header["X Name"] = []string{"1"}
		header["Keep-Alive"], header["Transfer-Encoding"], header["Upgrade"] = []string{"1"}, []string{"chunked"}, []string{"x"}
		header["Proxy-Connection"] = []string{"x"}
		header["Content-Type"] = nil
		_, _ = io.WriteString(w, "fields")
	case "connection":
		header.Set("Connection", "close")
		_, _ = io.WriteString(w, "bye")
	case "hints":
		header.Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusEarlyHints)
		header.Del("Link")
		_, _ = io.WriteString(w, "hints")
	case "continue":
		w.WriteHeader(http.StatusContinue)
		_, _ = io.WriteString(w, "continue")
	case "twice":
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusNotFound)
	case "panic":
		panic(http.ErrAbortHandler)
	case "panicked": // after a part of the response
		_, _ = io.WriteString(w, "part")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "deadline":
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
		_, err := w.Write(pattern(queryInt(r, "n"), 0))
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		o.log("wrote until the deadline, error %t", err != nil)
	case "readdeadline":
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
		n, err := io.Copy(io.Discard, r.Body)
		o.log("read %d until the deadline, error %t", n, err != nil)
	case "flush": // before the first byte
		w.(http.Flusher).Flush()
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

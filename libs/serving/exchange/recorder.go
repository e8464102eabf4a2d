package exchange

import (
	"bufio"
	"net"
	"net/http"
)

// Recorder records the status code and size of a response.
type Recorder struct {
	http.ResponseWriter
	Code  int // 0 before the response starts
	Bytes int64
}

// WriteHeader implements http.ResponseWriter. It ignores informational codes.
func (r *Recorder) WriteHeader(code int) {
	if r.Code == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		r.Code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(b []byte) (int, error) {
	if r.Code == 0 {
		r.Code = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.Bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher.
func (r *Recorder) Flush() {
	if f, ok := r.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Send implements Sender.
func (r *Recorder) Send(data []byte) error {
	if r.Code == 0 {
		r.Code = http.StatusOK
	}
	r.Bytes += int64(len(data)) // includes the bytes of a failed send
	return Send(r.ResponseWriter, data)
}

// Hijack supports upgrades.
func (r *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.Code = http.StatusSwitchingProtocols
	return http.NewResponseController(r.ResponseWriter).Hijack()
}

// Unwrap supports http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

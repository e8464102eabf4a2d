package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"

	"binnacle/services/apiserver/internal/proxy/responselimit"
)

// rejectionTimeout bounds how long reading a rejection may take.
const rejectionTimeout = 10 * time.Second

// Proxy describes the target of an upgrade.
type Proxy struct {
	URL       *url.URL
	Transport *http.Transport
	// Timeout bounds the wait for the head of the response.
	Timeout time.Duration
	Errors  proxy.ErrorResponder
	// Lifetime, if set, bounds upgraded connections in place of the request's context, which may
	// have a deadline. Both connections are closed when it ends.
	Lifetime context.Context
	// OnResponse, if set, is called when a response has arrived. upgraded reports whether its
	// status code is 101.
	OnResponse func(upgraded bool)
}

// Serve proxies an upgrade request. If the backend responds with 101, Serve copies bytes between
// the client and the backend until a connection ends. It forwards a response of 400 or above to
// the client. Any other response is an error.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request) {
	out := utilnet.CloneRequest(r)
	out.Trailer = nil // some servers read trailers as headers
	utilnet.AppendForwardedForHeader(out)
	out.URL = p.URL
	backend, err := Dial(out, p.Transport, p.Timeout)
	if err != nil {
		p.Errors.Error(w, r, err)
		return
	}
	defer backend.Close()
	if p.OnResponse != nil {
		p.OnResponse(backend.Upgraded())
	}
	code := backend.Response.StatusCode
	switch {
	case backend.Upgraded():
		p.serveUpgraded(w, r, backend)
	case code < http.StatusBadRequest:
		p.Errors.Error(w, r, fmt.Errorf("invalid upgrade response: status code %d", code))
	default:
		forwardRejection(w, r, backend)
	}
}

// serveUpgraded forwards the 101 response and copies between client and backend.
func (p *Proxy) serveUpgraded(w http.ResponseWriter, r *http.Request, backend *Conn) {
	conn, buffers, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.Errors.Error(w, r, fmt.Errorf("error hijacking connection: %w", err))
		return
	}
	defer conn.Close()
	lifetime := p.Lifetime
	if lifetime == nil {
		lifetime = r.Context()
	}
	if !backend.setLifetime(lifetime) {
		return
	}
	defer context.AfterFunc(lifetime, func() { _ = conn.Close() })()
	if _, err := conn.Write(withoutOwnHeaders(backend.head)); err != nil {
		return // the client is gone
	}
	backend.DropResponse() // frees memory, because the connection may last
	Splice(&bufferedConn{conn, buffers.Reader}, backend)
}

// bufferedConn is a client's connection with buffered input.
type bufferedConn struct {
	net.Conn
	read *bufio.Reader
}

// Read implements net.Conn.
func (c *bufferedConn) Read(b []byte) (int, error) { return c.read.Read(b) }

// withoutOwnHeaders returns the head without the header fields that only this server may set. The
// rest is unchanged.
func withoutOwnHeaders(head []byte) []byte {
	var out []byte
	dropping := false // also for the continuation lines of a field
	for line := range bytes.Lines(head) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		if folded := line[0] == ' ' || line[0] == '\t'; !folded {
			dropping = responselimit.IsOwn(string(bytes.TrimSpace(name)))
		}
		if !dropping {
			out = append(out, line...)
		}
	}
	return out
}

// hopByHopHeaders lists the header fields that apply to a single connection.
var hopByHopHeaders = []string{
	"Connection", "Proxy-Connection", "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// forwardRejection forwards a rejection. The client may already have sent data in the new protocol,
// so the connection cannot be used for another request.
func forwardRejection(w http.ResponseWriter, r *http.Request, backend *Conn) {
	received := backend.Response.Header
	for _, tokens := range received["Connection"] {
		for name := range strings.SplitSeq(tokens, ",") {
			received.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHopHeaders {
		received.Del(name)
	}
	responselimit.DropOwn(received)
	sent := w.Header()
	for name := range sent { // like Kubernetes, send only the headers of the backend
		if name != "Audit-Id" {
			delete(sent, name)
		}
	}
	maps.Copy(sent, received)
	if r.ProtoMajor == 1 {
		sent.Set("Connection", "close")
	}
	w.WriteHeader(backend.Response.StatusCode)
	err := backend.SetReadDeadline(time.Now().Add(rejectionTimeout))
	if err == nil {
		_, err = io.Copy(&flushingWriter{w, http.NewResponseController(w)}, backend.Response.Body)
	}
	if err != nil {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // the client must notice that the response is incomplete
	}
}

// flushingWriter flushes each write.
type flushingWriter struct {
	io.Writer
	writer *http.ResponseController
}

// Write implements io.Writer.
func (f *flushingWriter) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil {
		err = f.writer.Flush()
	}
	return n, err
}

// Splice copies data between two connections in both directions. When one direction ends, it closes
// both connections. It returns when both directions have ended.
func Splice(a, b net.Conn) {
	done := make(chan struct{}, 2)
	copyData := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // on any error, Splice closes both connections
		done <- struct{}{}
	}
	go copyData(a, b)
	go copyData(b, a)
	<-done
	_ = a.Close()
	_ = b.Close()
	<-done
}

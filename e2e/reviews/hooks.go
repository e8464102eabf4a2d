package reviews

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// Hooks is a webhook server that returns recorded responses.
type Hooks struct {
	Port string

	close func()
	// respond returns the response to a call. Tests replace it, and several servers may share it.
	respond func(Call) CallResponse

	mu     sync.Mutex
	script []Call
	used   []bool // by index in script
	calls  []Call // received since Play
}

// StartHooks starts the server, without TLS if the certificate is empty. It supports HTTP/2 unless
// protocols are given.
func StartHooks(t testing.TB, cert tls.Certificate, protocols ...string) *Hooks {
	t.Helper()
	hooks := &Hooks{}
	hooks.respond = hooks.nextRecorded
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, hooks.Port, _ = net.SplitHostPort(listener.Addr().String())
	server := &http.Server{
		Handler:   hooks,
		ErrorLog:  log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, NextProtos: protocols},
	}
	if len(protocols) > 0 {
		server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // no HTTP/2
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if len(cert.Certificate) == 0 {
			_ = server.Serve(listener)
			return
		}
		_ = server.ServeTLS(listener, "", "")
	}()
	hooks.close = func() { _ = server.Close(); <-done }
	t.Cleanup(hooks.close)
	return hooks
}

// Close stops the server.
func (h *Hooks) Close() { h.close() }

// Play makes the server return the responses of script, and forgets earlier calls.
func (h *Hooks) Play(script []Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.script, h.used, h.calls = script, make([]bool, len(script)), nil
}

// Calls returns the calls since Play.
func (h *Hooks) Calls() []Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Call(nil), h.calls...)
}

// ServeHTTP implements http.Handler.
func (h *Hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body any
	if len(raw) > 0 && json.Unmarshal(raw, &body) != nil {
		body = string(raw)
	}
	got := Call{Path: r.URL.RequestURI(), Proto: r.Proto, Host: r.Host, Headers: map[string]string{}, Body: body}
	for k, v := range r.Header {
		if k != "Content-Length" {
			got.Headers[k] = strings.Join(v, ",")
		}
	}
	response := h.respond(got)
	time.Sleep(time.Duration(response.SleepMs) * time.Millisecond)
	if response.Closes {
		panic(http.ErrAbortHandler)
	}
	for k, v := range response.Headers {
		w.Header().Set(k, v)
	}
	status := response.Status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	switch b := response.Body.(type) {
	case nil:
	case string:
		_, _ = io.WriteString(w, b)
	default:
		_ = json.NewEncoder(w).Encode(b)
	}
}

// nextRecorded records a call and returns the response of the next unused call with its path in the
// script. Placeholders in the response are replaced by the values of this run.
func (h *Hooks) nextRecorded(got Call) CallResponse {
	h.mu.Lock()
	defer h.mu.Unlock()
	path, _, _ := strings.Cut(got.Path, "?")
	for i, call := range h.script {
		recordedPath, _, _ := strings.Cut(call.Path, "?")
		if h.used[i] || recordedPath != path {
			continue
		}
		h.used[i] = true
		values := map[string]string{"<hook>": h.Port} // by placeholder
		bindPlaceholders(call.Body, got.Body, values)
		for _, unbound := range []string{"<uid-1>", "<uid-2>", "<uid-3>", "<uid-4>"} {
			if _, ok := values[unbound]; !ok {
				values[unbound] = "00000000-0000-4000-8000-000000000000"
			}
		}
		response := call.Response
		response.Body = fillPlaceholders(response.Body, values)
		response.Headers = map[string]string{}
		for k, v := range call.Response.Headers {
			response.Headers[k] = strings.ReplaceAll(v, "<hook>", h.Port)
		}
		got.Response = call.Response
		h.calls = append(h.calls, got)
		return response
	}
	h.calls = append(h.calls, got)
	return CallResponse{Status: http.StatusNotFound, Body: "no script"}
}

// Certificate parses a certificate and its key.
func Certificate(t testing.TB, pair harness.Pair) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

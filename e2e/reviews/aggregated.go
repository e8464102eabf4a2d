package reviews

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// AggregatedExchange is one recorded exchange with an aggregated API, or the registration of the
// API.
type AggregatedExchange struct {
	Name   string         `json:"name"`
	Flags  []string       `json:"flags"`
	Client *ClientRequest `json:"client"`
	Calls  []ProxiedCall  `json:"calls"`
	// Response is a Response or only a status code.
	Response    json.RawMessage `json:"answer"`
	RawResponse string          `json:"rawAnswer"`
	Status      any             `json:"status"`
	Request     *Exchange       `json:"request"`
	Resources   *Exchange       `json:"resources"`
	// Discovery documents of the group.
	AggregatedDiscovery any `json:"aggregatedDiscovery"`
	GroupList           any `json:"groupList"`
	// Requests that the API server sent to the extension server unasked, such as for discovery,
	// within that time after the registration.
	Within1 []ProxiedCall `json:"callsWithin1Seconds"`
	Within2 []ProxiedCall `json:"callsWithin2Seconds"`
	Within4 []ProxiedCall `json:"callsWithin4Seconds"`
	Within6 []ProxiedCall `json:"callsWithin6Seconds"`
}

// ProxiedCall is a request to an extension server and its response. Response may be only a
// status code.
type ProxiedCall struct {
	Path              string          `json:"path"`
	Proto             string          `json:"proto"`
	Method            string          `json:"method"`
	Host              string          `json:"host"`
	ClientCertificate string          `json:"clientCertificate"`
	User              string          `json:"user"`
	Headers           map[string]any  `json:"headers"`
	Body              any             `json:"body"`
	Response          json.RawMessage `json:"answer"`
}

// proxiedResponse is a response of an extension server.
type proxiedResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`
	SleepMs int               `json:"sleepMs"`
	Closes  bool              `json:"closesConnection"`
	Raw     string            `json:"raw"`
}

// Extension is an extension server that returns recorded responses.
type Extension struct {
	Port string

	mu     sync.Mutex
	script map[string]proxiedResponse // by path
	calls  []ProxiedCall
}

// StartExtension starts the server, without TLS if the certificate is empty.
func StartExtension(t testing.TB, cert tls.Certificate) *Extension {
	t.Helper()
	e := &Extension{}
	e.Port = e.AddListener(t, cert)
	return e
}

// AddListener makes the server listen on one more port, with the certificate.
func (e *Extension) AddListener(t testing.TB, cert tls.Certificate) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	server := &http.Server{
		Handler:   e,
		ErrorLog:  log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert},
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
	t.Cleanup(func() { _ = server.Close(); <-done })
	return port
}

// Play sets the responses of calls and, for other paths, those in more. It forgets earlier
// requests.
func (e *Extension) Play(more map[string]proxiedResponse, calls ...ProxiedCall) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.script = map[string]proxiedResponse{}
	e.calls = nil
	for path, a := range more {
		e.script[path] = a
	}
	for _, c := range calls {
		path, _, _ := strings.Cut(c.Path, "?")
		a := c.recordedResponse()
		a.Body = fillPlaceholders(a.Body, map[string]string{"<ext>": e.Port})
		for k, v := range a.Headers {
			a.Headers[k] = strings.ReplaceAll(v, "<ext>", e.Port)
		}
		e.script[path] = a
	}
}

// Calls returns the requests since Play.
func (e *Extension) Calls() []ProxiedCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]ProxiedCall(nil), e.calls...)
}

// ServeHTTP implements http.Handler.
func (e *Extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	got := ProxiedCall{
		Path:    r.RequestURI,
		Proto:   r.Proto,
		Method:  r.Method,
		Host:    r.Host,
		User:    r.Header.Get("X-Remote-User"),
		Headers: map[string]any{},
	}
	if len(raw) > 0 && json.Unmarshal(raw, &got.Body) != nil {
		got.Body = string(raw)
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		got.ClientCertificate = r.TLS.PeerCertificates[0].Subject.String()
	}
	for k, v := range r.Header {
		switch {
		case k == "Content-Length":
		case len(v) == 1:
			got.Headers[k] = v[0]
		default:
			got.Headers[k] = toGenericJSON(v)
		}
	}
	e.mu.Lock()
	path, _, _ := strings.Cut(r.RequestURI, "?")
	a, known := e.script[path]
	e.calls = append(e.calls, got)
	e.mu.Unlock()
	if !known {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "404 page not found\n")
		return
	}
	a.writeTo(w, r)
}

// writeTo writes the recorded response after the recorded delay.
func (a *proxiedResponse) writeTo(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(time.Duration(a.SleepMs) * time.Millisecond):
	case <-r.Context().Done():
		return
	}
	if a.Closes {
		panic(http.ErrAbortHandler)
	}
	if a.Raw != "" {
		conn, readWriter, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(readWriter, a.Raw)
		_ = readWriter.Flush()
		return
	}
	for k, v := range a.Headers {
		w.Header().Set(k, v)
	}
	w.WriteHeader(max(a.Status, http.StatusOK))
	switch b := a.Body.(type) {
	case nil:
	case string:
		_, _ = io.WriteString(w, b)
	default:
		var buf bytes.Buffer
		_ = json.NewEncoder(&buf).Encode(b)
		_, _ = w.Write(buf.Bytes())
	}
}

// recordedResponse parses Response, which may be only a status code.
func (c *ProxiedCall) recordedResponse() (a proxiedResponse) {
	if json.Unmarshal(c.Response, &a) != nil {
		_ = json.Unmarshal(c.Response, &a.Status)
	}
	return a
}

// comparedParts returns the parts of a request that the replay compares, by name.
func (c *ProxiedCall) comparedParts() map[string]any {
	return map[string]any{
		"path":              c.Path,
		"proto":             c.Proto,
		"method":            c.Method,
		"host":              c.Host,
		"clientCertificate": c.ClientCertificate,
		"headers":           c.Headers,
		"body":              c.Body,
	}
}

func (c *ProxiedCall) String() string {
	user := c.User
	if user == "" {
		user, _ = c.Headers["X-Remote-User"].(string)
	}
	return fmt.Sprintf("%s of %s", c.Path, user)
}

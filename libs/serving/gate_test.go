package serving

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/libs/pipetest"
	"binnacle/libs/serving/conns"
	"binnacle/libs/serving/drain"
	"binnacle/libs/serving/exchange"
)

// TestGateDrains checks that a closed gate reports the remaining requests of each class, and that
// it may be closed again.
func TestGateDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := map[string]chan struct{}{"/short": make(chan struct{}), "/long": make(chan struct{})}
		isLong := func(r *http.Request) bool { return r.URL.Path == "/long" }
		gate := newGate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-release[r.URL.Path] }), isLong,
			false, newLimits(t), conns.NewHeaderLimits(1))
		for path := range release {
			go gate.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		}
		synctest.Wait()
		gate.requests.Close()
		left := func(want [2]int) {
			t.Helper()
			gate.requests.Close()
			if got := [2]int{gate.requests.Wait(drain.Short, time.Second), gate.requests.Wait(drain.Long, time.Second)}; got != want {
				t.Errorf("requests left = %v, want %v", got, want)
			}
		}
		left([2]int{1, 1})
		close(release["/short"])
		synctest.Wait()
		left([2]int{0, 1})
		w := httptest.NewRecorder()
		gate.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/short", nil))
		if h := w.Header(); w.Code != http.StatusServiceUnavailable || h.Get("Connection") != "close" ||
			h.Get("Retry-After") != "1" {
			t.Errorf("new request got %d %v, want 503", w.Code, h)
		}
		left([2]int{0, 1})
		close(release["/long"])
		synctest.Wait()
		left([2]int{0, 0})
	})
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(http.NotFoundHandler(), nil, false, newLimits(t), conns.NewHeaderLimits(1))
		w := httptest.NewRecorder()
		gate.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		gate.requests.Close()
		if n := gate.requests.Wait(drain.Short, 0) + gate.requests.Wait(drain.Long, 0); n > 0 || w.Code != http.StatusNotFound {
			t.Errorf("got status %d, %d requests left, want %d, none", w.Code, n, http.StatusNotFound)
		}
	})
}

func newLimits(t *testing.T) *exchange.Limits {
	t.Helper()
	l, err := exchange.NewLimits(time.Minute, time.Minute, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// testGate runs test in a synctest bubble with a connection to a server that responds to requests
// with the number of header fields and body bytes.
func testGate(t *testing.T, test func(t *testing.T, c net.Conn, r *bufio.Reader)) {
	synctest.Test(t, func(t *testing.T) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, len(r.Header), " ", n)
		})
		server := &http.Server{
			Handler:                      newGate(handler, nil, false, newLimits(t), conns.NewHeaderLimits(1)),
			DisableGeneralOptionsHandler: true,
		}
		l := pipetest.Listen(443)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		client, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(t, client, bufio.NewReader(client))
		_ = client.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// TestServerOptions checks that "OPTIONS *" gets the response of net/http, and only when the whole
// request arrives.
func TestServerOptions(t *testing.T) {
	const all, end = "OPTIONS * HTTP/1.1\r\nHost: a\r\n", "\r\n"
	testGate(t, func(t *testing.T, c net.Conn, reader *bufio.Reader) {
		go func() {
			_, _ = io.WriteString(c,
				all+end+all+"Content-Length: 3\r\n\r\nabc"+"GET / HTTP/1.1\r\nHost: a\r\n"+end+
					"OPTIONS / HTTP/1.1\r\nHost: a\r\n"+end+"GET * HTTP/1.1\r\nHost: a\r\n"+end)
		}()
		for i, want := range []string{"", "", "0 0", "0 0", "0 0"} {
			resp, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != want || err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("response %d is %d %q, %v; want %q", i+1, resp.StatusCode, body, err, want)
			}
		}
	})
	testGate(t, func(t *testing.T, c net.Conn, reader *bufio.Reader) {
		go func() { _, _ = io.WriteString(c, all+"Content-Length: 100\r\n\r\n") }()
		start := time.Now()
		if _, err := io.ReadAll(reader); time.Since(start) > 2*time.Minute {
			t.Errorf("a client that sends no body is kept for %v: %v, want at most %v", time.Since(start), err, 2*time.Minute)
		}
	})
}

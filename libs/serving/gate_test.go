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

// TestClosedGateReportsRemainingRequests checks that a closed gate reports the remaining requests
// of each class, and that it may be closed again.
func TestClosedGateReportsRemainingRequests(t *testing.T) {
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
		expectRemaining := func(want [2]int) {
			t.Helper()
			gate.requests.Close()
			if got := [2]int{gate.requests.Wait(drain.Short, time.Second), gate.requests.Wait(drain.Long, time.Second)}; got != want {
				t.Errorf("requests left = %v, want %v", got, want)
			}
		}
		expectRemaining([2]int{1, 1})
		close(release["/short"])
		synctest.Wait()
		expectRemaining([2]int{0, 1})
		recorder := httptest.NewRecorder()
		gate.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/short", nil))
		if h := recorder.Header(); recorder.Code != http.StatusServiceUnavailable || h.Get("Connection") != "close" ||
			h.Get("Retry-After") != "1" {
			t.Errorf("new request got %d %v, want 503", recorder.Code, h)
		}
		expectRemaining([2]int{0, 1})
		close(release["/long"])
		synctest.Wait()
		expectRemaining([2]int{0, 0})
	})
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(http.NotFoundHandler(), nil, false, newLimits(t), conns.NewHeaderLimits(1))
		recorder := httptest.NewRecorder()
		gate.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
		gate.requests.Close()
		if n := gate.requests.Wait(drain.Short, 0) + gate.requests.Wait(drain.Long, 0); n > 0 || recorder.Code != http.StatusNotFound {
			t.Errorf("got status %d, %d requests left, want %d, none", recorder.Code, n, http.StatusNotFound)
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
		listener := pipetest.Listen(443)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		client, err := listener.Dial(t.Context())
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

// TestOptionsOfServerGetsResponseAfterWholeRequest checks that "OPTIONS *" gets the response of
// net/http, and only when the whole request arrives.
func TestOptionsOfServerGetsResponseAfterWholeRequest(t *testing.T) {
	const optionsRequest, end = "OPTIONS * HTTP/1.1\r\nHost: a\r\n", "\r\n"
	testGate(t, func(t *testing.T, c net.Conn, reader *bufio.Reader) {
		go func() {
			_, _ = io.WriteString(c,
				optionsRequest+end+optionsRequest+"Content-Length: 3\r\n\r\nabc"+"GET / HTTP/1.1\r\nHost: a\r\n"+end+
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
		go func() { _, _ = io.WriteString(c, optionsRequest+"Content-Length: 100\r\n\r\n") }()
		start := time.Now()
		if _, err := io.ReadAll(reader); time.Since(start) > 2*time.Minute {
			t.Errorf("a client that sends no body is kept for %v: %v, want at most %v", time.Since(start), err, 2*time.Minute)
		}
	})
}

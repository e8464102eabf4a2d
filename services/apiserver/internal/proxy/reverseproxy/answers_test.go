package reverseproxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestOnlyServerSetsUserHeaders checks that no header of the client reaches the server that only
// this server may set, however it is spelled.
func TestOnlyServerSetsUserHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan http.Header, 1)
		b := startProxy(t, 0, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
		r := httptest.NewRequest("GET", "/apis/g/v/things", nil)
		r.Header = http.Header{
			"Authorization": {"theirs"}, "Impersonate-User": {"theirs"}, "Impersonate_group": {"theirs"},
			"X-Remote-Group": {"theirs"}, "X-Remote-Extra-Scopes": {"theirs"}, "X_remote_user": {"theirs"},
			"X_ours": {"theirs"}, "X-Theirs": {"kept"},
		}
		u := &request.User{Name: "eve", Groups: []string{"g"}}
		b.Serve(httptest.NewRecorder(), r.WithContext(requesttest.WithUser(t.Context(), u)), http.Header{"X-Ours": {"ours"}})
		h := <-seen
		for name, values := range h {
			if strings.Contains(strings.Join(values, ","), "theirs") {
				t.Errorf("got header %s: %q forwarded, want none of the client", name, values)
			}
		}
		if h.Get("X-Remote-User") != "eve" ||
			h.Get("X-Remote-Group") != "g" ||
			h.Get("X-Ours") != "ours" ||
			h.Get("X-Theirs") != "kept" {
			t.Errorf("headers of the request = %v, want user eve, group g, X-Ours: ours, X-Theirs: kept", h)
		}
	})
}

// TestWaitingRequestEnds checks that a request whose server does not respond fails when the breaker
// opens or its deadline passes.
func TestWaitingRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProxy(t, 0, respondWhenCanceled)
		brief, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		w := b.request(brief, "a", nil, nil)
		b.checkResponse(w, http.StatusGatewayTimeout,
			`{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}`)
		b.alive.Store(false)
		w = b.request(t.Context(), "a", nil, nil)
		b.checkResponse(w, http.StatusServiceUnavailable, "error trying to reach service: it does not live\n")
		if w.Header().Get("Retry-After") != "1" {
			t.Errorf("headers of the response = %v, want Retry-After: 1", w.Header())
		}
	})
}

// errUnreachable is the error of pipeListener.dial if cut is set.
var errUnreachable = errors.New("connection refused")

// TestOnErrorReceivesConnectionError checks that OnError receives the error itself and not only its
// text.
func TestOnErrorReceivesConnectionError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProxy(t, 0, respondFine)
		var reported []error
		b.OnError = func(err error) { reported = append(reported, err) }
		b.checkResponse(b.request(t.Context(), "a", nil, nil), http.StatusOK, "fine")
		b.Connections.CloseIdleConnections()
		b.isCut.Store(true)
		b.checkResponse(b.request(t.Context(), "a", nil, nil), http.StatusServiceUnavailable, "")
		if len(reported) != 1 || !errors.Is(reported[0], errUnreachable) {
			t.Errorf("OnError received %v, want only errUnreachable", reported)
		}
	})
}

// TestAnsweredWatchHoldsNoSlot checks that a watch holds neither a slot nor seats once the server
// has responded.
func TestAnsweredWatchHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := startProxy(t, 1, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 3 {
			started := make(chan struct{})
			asked := time.Now()
			go func() {
				defer func() { _ = recover() }() // the incomplete response is aborted
				fixture.request((&requesttest.Work{OnStarted: func() { close(started) }}).With(ctx), "a", watch(), nil)
			}()
			<-started
			if d := time.Since(asked); d > 0 {
				t.Errorf("seats were released after %v, want at once", d)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// hijackable is a response recorder whose connection can be hijacked.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// TestUpgradedConnectionHoldsNoSlot checks that a connection holds neither a slot nor seats once it
// is upgraded.
func TestUpgradedConnectionHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := startProxy(t, 1, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(conn, rw)
		})
		for range 3 {
			started := make(chan struct{})
			ctx := requesttest.WithUser((&requesttest.Work{OnStarted: func() { close(started) }}).With(t.Context()),
				&request.User{Name: "a"})
			r := httptest.NewRequest("GET", "/apis/g/v/things", nil)
			r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"odd/1"}}
			client, hijacked := net.Pipe()
			defer client.Close()
			w := &hijackable{httptest.NewRecorder(), hijacked}
			go fixture.Serve(w, r.WithContext(ctx), nil)
			asked := time.Now()
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got %v, %v, recorded %d %s, want 101 on the connection", resp, err, w.Code, w.Body)
			}
			<-started
			if d := time.Since(asked); d > 0 {
				t.Errorf("seats were released after %v, want at once", d)
			}
		}
	})
}

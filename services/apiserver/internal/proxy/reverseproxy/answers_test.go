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
)

// TestWhatIsSaidOfTheClient: this server alone says who asks, however that is spelled.
func TestWhatIsSaidOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan http.Header, 1)
		b := start(t, 0, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
		r := httptest.NewRequest("GET", "/apis/g/v/things", nil)
		r.Header = http.Header{
			"Authorization": {"theirs"}, "Impersonate-User": {"theirs"}, "Impersonate_group": {"theirs"},
			"X-Remote-Group": {"theirs"}, "X-Remote-Extra-Scopes": {"theirs"}, "X_remote_user": {"theirs"},
			"X_ours": {"theirs"}, "X-Theirs": {"kept"},
		}
		u := &request.User{Name: "eve", Groups: []string{"g"}}
		b.Carry(httptest.NewRecorder(), r.WithContext(request.WithUser(t.Context(), u)), http.Header{"X-Ours": {"ours"}})
		h := <-seen
		for name, values := range h {
			if strings.Contains(strings.Join(values, ","), "theirs") {
				t.Errorf("%s: %q", name, values)
			}
		}
		if h.Get("X-Remote-User") != "eve" || h.Get("X-Remote-Group") != "g" || h.Get("X-Ours") != "ours" || h.Get("X-Theirs") != "kept" {
			t.Errorf("%v", h)
		}
	})
}

// TestWhoWaits is let go of when a server is found not to live, and learns when his time is over.
func TestWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, hangs)
		brief, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		w := b.ask(brief, "a", nil, nil)
		b.want(w, http.StatusGatewayTimeout, `{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}`)
		b.alive.Store(false)
		w = b.ask(t.Context(), "a", nil, nil)
		b.want(w, http.StatusServiceUnavailable, "error trying to reach service: it does not live\n")
		if w.Header().Get("Retry-After") != "1" {
			t.Errorf("%v", w.Header())
		}
	})
}

// errNobody is why nobody can be reached.
var errNobody = errors.New("nobody is there")

// TestRefused tells why the server could not be asked.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, fine)
		var why []error
		b.Refused = func(err error) { why = append(why, err) }
		b.want(b.ask(t.Context(), "a", nil, nil), http.StatusOK, "fine")
		b.Connections.CloseIdleConnections()
		b.cut.Store(true)
		b.want(b.ask(t.Context(), "a", nil, nil), http.StatusServiceUnavailable, "")
		if len(why) != 1 || !errors.Is(why[0], errNobody) {
			t.Errorf("%v", why)
		}
	})
}

// TestWatchesThatGoOn hold no place of those who wait, and are the client's time once they are answered.
func TestWatchesThatGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 3 {
			begun := make(chan struct{})
			asked := time.Now()
			go func() {
				defer func() { _ = recover() }() // an answer that was begun is cut
				b.ask(request.WithBegun(ctx, func() { close(begun) }), "a", watch(), nil)
			}()
			<-begun
			if d := time.Since(asked); d > 0 {
				t.Errorf("it has begun after %v", d)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// taken is an answer whose connection can be taken over.
type taken struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w *taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// TestUpgradedConnections hold no place of those who wait either, and begin when the server agrees.
func TestUpgradedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, func(w http.ResponseWriter, _ *http.Request) {
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
			begun := make(chan struct{})
			ctx := request.WithUser(request.WithBegun(t.Context(), func() { close(begun) }), &request.User{Name: "a"})
			r := httptest.NewRequest("GET", "/apis/g/v/things", nil)
			r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"odd/1"}}
			client, here := net.Pipe()
			defer client.Close()
			w := &taken{httptest.NewRecorder(), here}
			go b.Carry(w, r.WithContext(ctx), nil)
			asked := time.Now()
			if resp, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v %v, %d %s", resp, err, w.Code, w.Body)
			}
			<-begun
			if d := time.Since(asked); d > 0 {
				t.Errorf("it has begun after %v", d)
			}
		}
	})
}

package serving

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestGateDrains checks that a closed gate reports the remaining requests of each class, and that it
// may be closed again.
func TestGateDrains(t *testing.T) {
	testExchange(t, func(t *testing.T, l *limits) {
		release := map[string]chan struct{}{"/short": make(chan struct{}), "/long": make(chan struct{})}
		isLong := func(r *http.Request) bool { return r.URL.Path == "/long" }
		g := newGate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-release[r.URL.Path] }), isLong, false, l)
		for path := range release {
			go g.ServeHTTP(newFakeWriter(), httptest.NewRequest(http.MethodGet, path, nil))
		}
		synctest.Wait()
		g.close()
		left := func(want [2]int) {
			t.Helper()
			g.close()
			if got := [2]int{g.wait(short, time.Second), g.wait(long, time.Second)}; got != want {
				t.Errorf("requests left = %v, want %v", got, want)
			}
		}
		left([2]int{1, 1})
		close(release["/short"])
		synctest.Wait()
		left([2]int{0, 1})
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/short", nil))
		if h := w.Header(); w.Code != http.StatusServiceUnavailable || h.Get("Connection") != "close" || h.Get("Retry-After") != "1" {
			t.Errorf("new request got %d %v, want 503", w.Code, h)
		}
		left([2]int{0, 1})
		close(release["/long"])
		synctest.Wait()
		left([2]int{0, 0})
	})
	testExchange(t, func(t *testing.T, l *limits) {
		g := newGate(http.NotFoundHandler(), nil, false, l)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		g.close()
		if n := g.wait(short, 0) + g.wait(long, 0); n > 0 || w.Code != http.StatusNotFound {
			t.Errorf("status %d, %d requests left", w.Code, n)
		}
	})
}

package serving

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestGateDrains: a gate that is closed tells how many of each class are left, until there
// are none; it may be closed again.
func TestGateDrains(t *testing.T) {
	exchanged(t, func(t *testing.T, l *limits) {
		release := map[string]chan struct{}{"/short": make(chan struct{}), "/long": make(chan struct{})}
		isLong := func(r *http.Request) bool { return r.URL.Path == "/long" }
		g := newGate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-release[r.URL.Path] }), isLong, false, l)
		for path := range release {
			go g.ServeHTTP(newBelow(), httptest.NewRequest(http.MethodGet, path, nil))
		}
		synctest.Wait()
		g.close()
		left := func(want [2]int) {
			t.Helper()
			g.close()
			if got := [2]int{g.wait(short, time.Second), g.wait(long, time.Second)}; got != want {
				t.Errorf("%v are left, want %v", got, want)
			}
		}
		left([2]int{1, 1})
		close(release["/short"])
		synctest.Wait()
		left([2]int{0, 1})
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/short", nil))
		if h := w.Header(); w.Code != http.StatusServiceUnavailable || h.Get("Connection") != "close" || h.Get("Retry-After") != "1" {
			t.Errorf("a new request is answered with %d %v", w.Code, h)
		}
		left([2]int{0, 1})
		close(release["/long"])
		synctest.Wait()
		left([2]int{0, 0})
	})
	exchanged(t, func(t *testing.T, l *limits) {
		g := newGate(http.NotFoundHandler(), nil, false, l)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		g.close()
		if n := g.wait(short, 0) + g.wait(long, 0); n > 0 || w.Code != http.StatusNotFound {
			t.Errorf("answered with %d, %d are left", w.Code, n)
		}
	})
}

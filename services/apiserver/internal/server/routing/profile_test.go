package routing

import (
	"net/http/httptest"
	"testing"
)

// TestProfilesRequireExactPath checks that only exact paths of profiles are served, and none
// without Profiling.
func TestProfilesRequireExactPath(t *testing.T) {
	for path, want := range map[string]int{
		"/debug/pprof": 302, "/debug/pprof/": 200, "/debug/pprof/cmdline": 404, "/debug/pprof/symbol": 200, "/debug/pprof/goroutine": 200,
		"/debug/pprof/threadcreate": 200, "/debug/pprofcmdline": 404, "/debug/pprofx": 404, "/debug/pprof/heap/": 404, "/debug/pprof//cmdline": 404, "/debug/pprof/nothing": 404,
		"/debug/pprof/goroutine/x": 404, "/debug/pprof/cmdline/": 404, "/debug": 404,
	} {
		for _, on := range []bool{true, false} {
			if !on {
				want = 404
			}
			w := httptest.NewRecorder()
			(&Mux{Profiling: on}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != want {
				t.Errorf("%s: got %d, want %d", path, w.Code, want)
			}
		}
	}
}

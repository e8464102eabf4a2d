package routing

import (
	"net/http/httptest"
	"testing"
)

// TestProfilesRequireExactPath checks that only exact paths of profiles are served, and none
// without Profiling.
func TestProfilesRequireExactPath(t *testing.T) {
	for path, want := range map[string]int{
		"/debug/pprof":              302,
		"/debug/pprof/":             200,
		"/debug/pprof/symbol":       200,
		"/debug/pprof/goroutine":    200,
		"/debug/pprof/threadcreate": 200,
		"/debug/pprof/cmdline":      404, // Kubernetes components do not serve it
		"/debug/pprof/cmdline/":     404,
		"/debug/pprof//cmdline":     404,
		"/debug/pprof/goroutine/x":  404,
		"/debug/pprof/heap/":        404,
		"/debug/pprof/nothing":      404,
		"/debug/pprofcmdline":       404,
		"/debug/pprofx":             404,
		"/debug":                    404,
	} {
		for _, profiling := range []bool{true, false} {
			if !profiling {
				want = 404
			}
			w := httptest.NewRecorder()
			(&Mux{Profiling: profiling}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != want {
				t.Errorf("%s, profiling %t: got %d, want %d", path, profiling, w.Code, want)
			}
		}
	}
}

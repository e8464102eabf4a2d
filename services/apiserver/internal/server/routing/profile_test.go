package routing

import (
	"net/http"
	"net/http/httptest"
	"strings"
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
			response := httptest.NewRecorder()
			(&Mux{Profiling: profiling}).ServeHTTP(response, httptest.NewRequest("GET", path, nil))
			if response.Code != want {
				t.Errorf("%s, profiling %t: got %d, want %d", path, profiling, response.Code, want)
			}
		}
	}
}

// TestProfilesHandlerServesOnlyProfiles checks that the handler of profiles serves no other path.
func TestProfilesHandlerServesOnlyProfiles(t *testing.T) {
	for path, want := range map[string]int{
		"/debug/pprof/heap": 200, "/debug/pprof/": 200, "/debug/pprof//cmdline": 404, "/x": 404, "/": 404,
	} {
		response := httptest.NewRecorder()
		Profiles().ServeHTTP(response, httptest.NewRequest("GET", path, nil))
		if response.Code != want {
			t.Errorf("%s: got %d, want %d", path, response.Code, want)
		}
	}
}

// TestTimedProfilesAreServed checks that profiles that take a given time are served.
func TestTimedProfilesAreServed(t *testing.T) {
	for _, query := range []string{"profile?seconds=1", "trace?seconds=0.01"} {
		response := httptest.NewRecorder()
		(&Mux{Profiling: true}).ServeHTTP(response, httptest.NewRequest("GET", "/debug/pprof/"+query, nil))
		if name, _, _ := strings.Cut(query, "?"); response.Code != http.StatusOK ||
			!strings.Contains(response.Header().Get("Content-Disposition"), `"`+name+`"`) {
			t.Errorf("%s: got status %d: %v, want status %d and a text with %q", query, response.Code, response.Header(), http.StatusOK, `"`+name+`"`)
		}
	}
}

package routing_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/server/routing"
)

func TestProfilesRequireExactPath(t *testing.T) {
	for path, want := range map[string]int{
		"/debug/pprof": 302, "/debug/pprof/": 200, "/debug/pprof/cmdline": 200, "/debug/pprof/symbol": 200, "/debug/pprof/goroutine": 200,
		"/debug/pprof/threadcreate": 200, "/debug/pprofcmdline": 404, "/debug/pprofx": 404, "/debug/pprof/heap/": 404, "/debug/pprof//cmdline": 404, "/debug/pprof/nothing": 404,
		"/debug/pprof/goroutine/x": 404, "/debug/pprof/cmdline/": 404, "/debug": 404,
	} {
		for _, on := range []bool{true, false} {
			if !on {
				want = 404
			}
			w := httptest.NewRecorder()
			newMux(t, routing.Routes{Profiling: on}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != want {
				t.Errorf("%s: got %d, want %d", path, w.Code, want)
			}
		}
	}
}

func TestProfilesHandlerServesOnlyProfiles(t *testing.T) {
	for path, want := range map[string]int{
		"/debug/pprof/cmdline": 200, "/debug/pprof/": 200, "/debug/pprof//cmdline": 404, "/x": 404, "/": 404,
	} {
		w := httptest.NewRecorder()
		routing.Profiles().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}

func TestTimedProfilesAreServed(t *testing.T) {
	mux := newMux(t, routing.Routes{Profiling: true})
	for _, query := range []string{"profile?seconds=1", "trace?seconds=0.01"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/"+query, nil))
		if name, _, _ := strings.Cut(query, "?"); w.Code != http.StatusOK ||
			!strings.Contains(w.Header().Get("Content-Disposition"), `"`+name+`"`) {
			t.Errorf("%s: got status %d: %v, want status %d and a text with %q", query, w.Code, w.Header(), http.StatusOK, `"`+name+`"`)
		}
	}
}

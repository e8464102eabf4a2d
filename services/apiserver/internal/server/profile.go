package server

import (
	"net/http"
	"net/http/pprof"
	"strings"

	runtimepprof "runtime/pprof"
)

const profiles = "/debug/pprof/"

// isProfile tells whether a path is one of the profiles or their index: who may
// read one path of them may read no other by it.
func isProfile(path string) bool {
	name, below := strings.CutPrefix(path, profiles)
	switch name {
	case "", "cmdline", "profile", "symbol", "trace":
		return below
	}
	return path == strings.TrimSuffix(profiles, "/") || below && runtimepprof.Lookup(name) != nil
}

// Profiles serves /debug/pprof/ to everybody.
func Profiles() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isProfile(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		serveProfile(w, r)
	})
}

// serveProfile answers /debug/pprof, as Kubernetes components do.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	switch name, below := strings.CutPrefix(r.URL.Path, profiles); {
	case !below:
		http.Redirect(w, r, profiles, http.StatusMovedPermanently)
	case name == "cmdline":
		pprof.Cmdline(w, r)
	case name == "profile":
		pprof.Profile(w, r)
	case name == "symbol":
		pprof.Symbol(w, r)
	case name == "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

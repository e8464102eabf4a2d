package routing

import (
	"net/http"
	"net/http/pprof"
	"strings"

	runtimepprof "runtime/pprof"
)

const profilePrefix = "/debug/pprof/"

// isProfile reports whether a path is exactly that of a profile or of the index. Other spellings
// are not served, because authorization compares paths as written.
func isProfile(path string) bool {
	name, below := strings.CutPrefix(path, profilePrefix)
	switch name {
	case "", "cmdline", "profile", "symbol", "trace":
		return below
	}
	return path == strings.TrimSuffix(profilePrefix, "/") || below && runtimepprof.Lookup(name) != nil
}

// Profiles returns a handler that serves /debug/pprof/ without authorization.
func Profiles() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isProfile(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		serveProfile(w, r)
	})
}

// serveProfile serves /debug/pprof as Kubernetes components do.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	name, below := strings.CutPrefix(r.URL.Path, profilePrefix)
	switch {
	case !below:
		http.Redirect(w, r, profilePrefix, http.StatusFound)
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

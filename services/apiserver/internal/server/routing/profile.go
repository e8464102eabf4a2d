package routing

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

const profilePrefix = "/debug/pprof/"

// isProfile reports whether a path belongs to a profile or to the index of profiles.
func isProfile(path string) bool {
	return strings.HasPrefix(path, profilePrefix) || path == strings.TrimSuffix(profilePrefix, "/")
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

// serveProfile serves /debug/pprof as Kubernetes components do, which do not serve cmdline. Only
// exact names are those of profiles, because authorization compares paths as written.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	name, below := strings.CutPrefix(r.URL.Path, profilePrefix)
	switch {
	case !below:
		http.Redirect(w, r, profilePrefix, http.StatusFound)
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

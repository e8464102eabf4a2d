package server

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

// serveProfile answers /debug/pprof, as Kubernetes components do.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	switch name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/debug/pprof"), "/"); name {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

package health

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// Mount adds each endpoint, and the paths of its checks below it, to a router.
func (r *Registry) Mount(router gin.IRoutes) {
	handler := gin.WrapH(r)
	for _, e := range Endpoints() {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			router.Handle(method, "/"+string(e), handler)
			router.Handle(method, "/"+string(e)+"/*check", handler)
		}
	}
}

// ServeHTTP serves the endpoints and the paths below them. Other paths get 404.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	first, name, single := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	for _, endpoint := range Endpoints() {
		switch {
		case string(endpoint) != first:
		case !single:
			r.serveAll(endpoint, w, req)
			return
		default:
			r.serveOne(endpoint, name, w, req)
			return
		}
	}
	http.NotFound(w, req)
}

// serveAll runs the checks of an endpoint, except excluded ones, and writes the result.
func (r *Registry) serveAll(endpoint Endpoint, w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	checks := r.checksOf(endpoint)
	excluded, unknown := exclusions(checks, query["exclude"])
	var (
		body    strings.Builder
		failed  []string
		reasons []string
	)
	for _, check := range checks {
		if excluded[check.name] {
			fmt.Fprintf(&body, "[+]%s excluded: ok\n", check.name)
			continue
		}
		err := r.runCheck(endpoint, check, req)
		r.slis.record(endpoint, check.name, err)
		if err != nil {
			if check.informational {
				fmt.Fprintf(&body, "[-]%s failed: reason withheld, does not count\n", check.name)
				continue
			}
			fmt.Fprintf(&body, "[-]%s failed: reason withheld\n", check.name)
			failed = append(failed, check.name)
			reasons = append(reasons, check.name+": "+err.Error())
			continue
		}
		fmt.Fprintf(&body, "[+]%s ok\n", check.name)
	}
	if unknown != "" {
		fmt.Fprintf(&body, "warn: some health checks cannot be excluded: no matches for %s\n", unknown)
	}
	r.logFailures(endpoint, strings.Join(failed, ","), strings.Join(reasons, "; "))
	if len(failed) > 0 {
		http.Error(w, fmt.Sprintf("%s%s check failed", body.String(), endpoint), http.StatusInternalServerError)
		return
	}
	if _, verbose := query["verbose"]; !verbose {
		writeText(w, "ok")
		return
	}
	writeText(w, fmt.Sprintf("%s%s check passed\n", body.String(), endpoint))
}

// maxUnknown limits the bytes of requested names that a response repeats, because any client may
// send long ones.
const maxUnknown = 512

// exclusions returns the checks to exclude, and the distinct quoted names that match no check.
func exclusions(checks []check, requested []string) (excluded map[string]bool, unknown string) {
	if len(requested) == 0 {
		return nil, ""
	}
	excluded = make(map[string]bool, len(checks)) // false until requested
	for _, c := range checks {
		excluded[c.name] = false
	}
	reported := map[string]bool{}
	for _, name := range requested {
		if _, ok := excluded[name]; ok {
			excluded[name] = true
			continue
		}
		if reported[name] || len(unknown) > maxUnknown {
			continue
		}
		reported[name] = true
		if unknown != "" {
			unknown += ","
		}
		if remaining := maxUnknown - len(unknown); len(name) > remaining {
			unknown += fmt.Sprintf("%q...", name[:max(remaining, 0)])
			continue
		}
		unknown += fmt.Sprintf("%q", name)
	}
	return excluded, unknown
}

// serveOne runs one check and writes its result.
func (r *Registry) serveOne(endpoint Endpoint, name string, w http.ResponseWriter, req *http.Request) {
	for _, c := range r.checksOf(endpoint) {
		if c.name != name {
			continue
		}
		if err := r.runCheck(endpoint, c, req); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		// As in Kubernetes, a single check has no X-Content-Type-Options, unlike the endpoint.
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok")) // an error means that the client is gone
		return
	}
	http.NotFound(w, req)
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// An error means that the client is gone.
	_, _ = w.Write([]byte(text))
}

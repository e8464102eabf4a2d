package server

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/endpoints"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// Documents serves discovery.
type Documents interface {
	ServeAPIRoot(w http.ResponseWriter, r *http.Request)
	ServeAPIsRoot(w http.ResponseWriter, r *http.Request)
	ServeGroup(w http.ResponseWriter, r *http.Request, group string)
	ServeGroupVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion)
	ServeVersion(w http.ResponseWriter, r *http.Request)
	ServePaths(w http.ResponseWriter, r *http.Request)
}

// Mux finds who answers a path.
type Mux struct {
	// Catalog has the built-in kinds that are served, All has the others too.
	Catalog   *registry.Catalog
	All       *registry.Catalog
	API       *endpoints.API
	Discovery Documents
	Health    http.Handler
	Metrics   http.Handler
	OpenAPI   http.Handler // below /openapi/
	Issuer    http.Handler // documents of service account tokens; nil without
	// Profiling serves /debug/pprof/.
	Profiling bool
}

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/api/"), strings.HasPrefix(path, "/apis/"), path == "/api", path == "/apis":
		m.serveAPI(w, r)
	case isHealth(path):
		m.Health.ServeHTTP(w, r)
	case path == "/metrics":
		m.Metrics.ServeHTTP(w, r)
	case path == "/version" || path == "/version/":
		m.Discovery.ServeVersion(w, r)
	case strings.HasPrefix(path, "/openapi/"):
		m.OpenAPI.ServeHTTP(w, r)
	case m.Issuer != nil && (path == satoken.DiscoveryPath || path == satoken.JWKSPath):
		m.Issuer.ServeHTTP(w, r)
	case path == "/" || path == "":
		m.Discovery.ServePaths(w, r)
	case m.Profiling && strings.HasPrefix(path, "/debug/pprof"):
		serveProfile(w, r)
	default:
		http.NotFound(w, r)
	}
}

func isHealth(path string) bool {
	for _, p := range []string{"/healthz", "/livez", "/readyz"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// serveAPI answers everything below /api and /apis: resources, and the
// documents that tell of them.
func (m *Mux) serveAPI(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group, version := "", ""
	if parts[0] == "api" {
		if len(parts) > 1 {
			version = parts[1]
		}
	} else {
		if len(parts) > 1 {
			group = parts[1]
			if group == "" || !m.Catalog.ServesGroup(group) {
				http.NotFound(w, r)
				return
			}
		}
		if len(parts) > 2 {
			version = parts[2]
		}
	}
	gv := schema.GroupVersion{Group: group, Version: version}
	switch i := request.InfoFrom(r.Context()); {
	case version != "" && !m.Catalog.Serves(gv):
		m.refuse(w, r, http.StatusNotFound)
	case i.IsResource && m.off(i):
		m.refuse(w, r, http.StatusNotFound)
	case i.IsResource:
		m.API.ServeHTTP(w, r)
	case r.Method != http.MethodGet:
		m.refuse(w, r, http.StatusMethodNotAllowed)
	case version != "":
		m.Discovery.ServeGroupVersion(w, r, gv)
	case group != "":
		m.Discovery.ServeGroup(w, r, group)
	case parts[0] == "api":
		m.Discovery.ServeAPIRoot(w, r)
	default:
		m.Discovery.ServeAPIsRoot(w, r)
	}
}

// off tells whether a built-in kind is not served.
func (m *Mux) off(i *request.Info) bool {
	return m.All != nil && m.All.Resource(i.GVR()) != nil && m.Catalog.Resource(i.GVR()) == nil
}

func (m *Mux) refuse(w http.ResponseWriter, r *http.Request, code int) {
	reason, message := metav1.StatusReasonNotFound, "the server could not find the requested resource"
	if code == http.StatusMethodNotAllowed {
		reason, message = metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource"
	}
	m.API.Error(w, r, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}})
}

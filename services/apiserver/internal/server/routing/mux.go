package routing

import (
	"net/http"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec/negotiation"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/status"
)

// Documents serves discovery.
type Documents interface {
	HasGroup(name string) bool
	ServeAPIRoot(w http.ResponseWriter, r *http.Request)
	ServeAPIsRoot(w http.ResponseWriter, r *http.Request)
	ServeGroup(w http.ResponseWriter, r *http.Request, group string)
	ServeGroupVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion)
	ServeVersion(w http.ResponseWriter, r *http.Request)
	ServePaths(w http.ResponseWriter, r *http.Request)
}

// Mux routes a request by its path.
type Mux struct {
	API       *handlers.API
	Discovery Documents
	Health    http.Handler
	Metrics   http.Handler
	SLIs      http.Handler // metrics of health check results
	OpenAPI   http.Handler // below /openapi/
	Issuer    http.Handler // OIDC discovery of service account tokens; may be nil
	// Flagz and Statusz are nil where their feature gates are off.
	Flagz, Statusz http.Handler
	// Flow, if set, is dumped below /debug/api_priority_and_fairness/.
	Flow *flowcontrol.Controller
	// Profiling serves /debug/pprof/, and /debug/flags/v, which calls Verbosity.
	Profiling bool
	Verbosity func(int)
	// LogFiles, if set, is the directory that is served below /logs/.
	LogFiles string
}

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/api/"), strings.HasPrefix(path, "/apis/"), path == "/api", path == "/apis":
		m.serveAPI(w, r)
	case IsHealth(path):
		m.Health.ServeHTTP(w, r)
	case path == "/metrics":
		m.Metrics.ServeHTTP(w, r)
	case path == "/metrics/slis":
		m.SLIs.ServeHTTP(w, r)
	case path == "/version" || strings.HasPrefix(path, "/version/"):
		m.serveVersion(w, r)
	case strings.HasPrefix(path, "/openapi/"):
		m.OpenAPI.ServeHTTP(w, r)
	case m.Issuer != nil && path == satoken.DiscoveryPath:
		m.serveMedia(w, r, api.MediaJSON, m.Issuer.ServeHTTP)
	case m.Issuer != nil && path == satoken.JWKSPath:
		m.serveMedia(w, r, satoken.JWKSMedia, m.Issuer.ServeHTTP)
	case path == "/" || path == "" || path == "/index.html":
		m.Discovery.ServePaths(w, r)
	case m.Flagz != nil && path == "/flagz":
		m.Flagz.ServeHTTP(w, r)
	case m.Statusz != nil && path == "/statusz":
		m.Statusz.ServeHTTP(w, r)
	case m.Flow != nil && strings.HasPrefix(path, flowDumpPrefix):
		serveFlowDump(w, r, m.Flow)
	case m.LogFiles != "" && (path == "/logs" || strings.HasPrefix(path, "/logs/")):
		m.serveLogs(w, r)
	case m.Profiling && isProfile(path):
		serveProfile(w, r)
	case m.Profiling && path == verbosityPath:
		m.serveVerbosity(w, r)
	default:
		http.NotFound(w, r)
	}
}

// serveLogs serves log files. It rejects a path that is not clean,
// because only the path as written was authorized.
func (m *Mux) serveLogs(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		m.API.Error(w, r, status.Method())
		return
	}
	if named := strings.TrimSuffix(r.URL.Path, "/"); path.Clean(named) != named {
		http.Error(w, "invalid URL path", http.StatusBadRequest)
		return
	}
	http.StripPrefix("/logs", http.FileServer(http.Dir(m.LogFiles))).ServeHTTP(w, r)
}

// serveVersion serves /version. Its errors are Statuses, as in discovery.
func (m *Mux) serveVersion(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/version" && r.URL.Path != "/version/" {
		m.API.Error(w, r, status.NoResource())
		return
	}
	m.serveMedia(w, r, api.MediaJSON, m.Discovery.ServeVersion)
}

// serveMedia serves GET of a document with one media type.
func (m *Mux) serveMedia(w http.ResponseWriter, r *http.Request, media string, serve http.HandlerFunc) {
	switch {
	case r.Method != http.MethodGet:
		m.API.Error(w, r, status.Method())
	case !negotiation.Names(r.Header.Get("Accept"), func(t string) bool { return t == media }):
		m.API.Error(w, r, status.NoRepresentation([]string{media}))
	default:
		serve(w, r)
	}
}

// IsHealth reports whether a path belongs to a health check.
func IsHealth(path string) bool {
	for _, p := range []string{"/healthz", "/livez", "/readyz"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// servesPath reports whether the API set has the custom resource,
// subresource or group version of a path.
func servesPath(op *requestinfo.Info, gv schema.GroupVersion) bool {
	if !op.IsResource {
		return op.Kinds.Serves(gv)
	}
	return op.Target != nil || op.Subresource != "" && op.Kinds.Resource(op.GVR()) != nil
}

// serveAPI serves all paths below /api and /apis: resources and discovery.
func (m *Mux) serveAPI(w http.ResponseWriter, r *http.Request) {
	op := requestinfo.FromContext(r.Context())
	if op.Delegate != nil {
		op.Delegate.ServeHTTP(w, r)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var groupVersion schema.GroupVersion
	if parts[0] == "apis" && len(parts) > 1 {
		groupVersion.Group = parts[1]
		parts = parts[1:]
		if groupVersion.Group == "" || !op.Kinds.ServesGroup(groupVersion.Group) && !m.Discovery.HasGroup(groupVersion.Group) {
			http.NotFound(w, r)
			return
		}
	}
	if len(parts) > 1 {
		groupVersion.Version = parts[1]
	}
	if groupVersion.Group != "" && groupVersion.Version != "" && !op.Kinds.BuiltIn(groupVersion.Group) && !servesPath(op, groupVersion) {
		http.NotFound(w, r) // plain text, as for an unknown path
		return
	}
	switch {
	case op.IsResource:
		m.API.ServeHTTP(w, r)
	case groupVersion.Version != "" && !op.Kinds.Serves(groupVersion):
		m.API.Error(w, r, status.NoResource())
	case servesAnyMethod(op, parts[0], groupVersion):
		m.serveDiscovery(w, r, parts[0], groupVersion)
	case r.Method != http.MethodGet:
		m.API.Error(w, r, status.Method())
	case !m.API.Media.Supports(r.Header.Get("Accept")):
		m.API.Error(w, r, status.NoRepresentation(m.API.Media.Objects()))
	default:
		m.serveDiscovery(w, r, parts[0], groupVersion)
	}
}

// servesAnyMethod reports whether Kubernetes serves a discovery document for any method. root is
// api or apis if the path names no group.
func servesAnyMethod(op *requestinfo.Info, root string, gv schema.GroupVersion) bool {
	if gv.Version != "" {
		return !op.Kinds.BuiltIn(gv.Group)
	}
	return root != "api" && gv.Group != apiregistrationv1.GroupName
}

// serveDiscovery serves a discovery document; see servesAnyMethod.
func (m *Mux) serveDiscovery(w http.ResponseWriter, r *http.Request, root string, gv schema.GroupVersion) {
	switch {
	case gv.Version != "":
		m.Discovery.ServeGroupVersion(w, r, gv)
	case gv.Group != "":
		m.Discovery.ServeGroup(w, r, gv.Group)
	case root == "api":
		m.Discovery.ServeAPIRoot(w, r)
	default:
		m.Discovery.ServeAPIsRoot(w, r)
	}
}

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
func (mux *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	urlPath := r.URL.Path
	switch {
	case strings.HasPrefix(urlPath, "/api/"), strings.HasPrefix(urlPath, "/apis/"), urlPath == "/api", urlPath == "/apis":
		mux.serveAPI(w, r)
	case IsHealth(urlPath):
		mux.Health.ServeHTTP(w, r)
	case urlPath == "/metrics":
		mux.Metrics.ServeHTTP(w, r)
	case urlPath == "/metrics/slis":
		mux.SLIs.ServeHTTP(w, r)
	case urlPath == "/version" || strings.HasPrefix(urlPath, "/version/"):
		mux.serveVersion(w, r)
	case strings.HasPrefix(urlPath, "/openapi/"):
		mux.OpenAPI.ServeHTTP(w, r)
	case mux.Issuer != nil && urlPath == satoken.DiscoveryPath:
		mux.serveMedia(w, r, api.MediaJSON, mux.Issuer.ServeHTTP)
	case mux.Issuer != nil && urlPath == satoken.JWKSPath:
		mux.serveMedia(w, r, satoken.JWKSMedia, mux.Issuer.ServeHTTP)
	case urlPath == "/" || urlPath == "" || urlPath == "/index.html":
		mux.Discovery.ServePaths(w, r)
	case mux.Flagz != nil && urlPath == "/flagz":
		mux.Flagz.ServeHTTP(w, r)
	case mux.Statusz != nil && urlPath == "/statusz":
		mux.Statusz.ServeHTTP(w, r)
	case mux.Flow != nil && strings.HasPrefix(urlPath, flowDumpPrefix):
		serveFlowDump(w, r, mux.Flow)
	case mux.LogFiles != "" && (urlPath == "/logs" || strings.HasPrefix(urlPath, "/logs/")):
		mux.serveLogs(w, r)
	case mux.Profiling && isProfile(urlPath):
		serveProfile(w, r)
	case mux.Profiling && urlPath == verbosityPath:
		mux.serveVerbosity(w, r)
	default:
		http.NotFound(w, r)
	}
}

// serveLogs serves log files. It rejects a path that is not clean,
// because only the path as written was authorized.
func (mux *Mux) serveLogs(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		mux.API.Error(w, r, status.Method())
		return
	}
	if named := strings.TrimSuffix(r.URL.Path, "/"); path.Clean(named) != named {
		http.Error(w, "invalid URL path", http.StatusBadRequest)
		return
	}
	http.StripPrefix("/logs", http.FileServer(http.Dir(mux.LogFiles))).ServeHTTP(w, r)
}

// serveVersion serves /version. Its errors are Statuses, as in discovery.
func (mux *Mux) serveVersion(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/version" && r.URL.Path != "/version/" {
		mux.API.Error(w, r, status.NoResource())
		return
	}
	mux.serveMedia(w, r, api.MediaJSON, mux.Discovery.ServeVersion)
}

// serveMedia serves GET of a document with one media type.
func (mux *Mux) serveMedia(w http.ResponseWriter, r *http.Request, media string, serve http.HandlerFunc) {
	switch {
	case r.Method != http.MethodGet:
		mux.API.Error(w, r, status.Method())
	case !negotiation.AcceptsAny(r.Header.Get("Accept"), func(t string) bool { return t == media }):
		mux.API.Error(w, r, status.NoRepresentation([]string{media}))
	default:
		serve(w, r)
	}
}

// IsHealth reports whether a path belongs to a health check.
func IsHealth(urlPath string) bool {
	for _, prefix := range []string{"/healthz", "/livez", "/readyz"} {
		if urlPath == prefix || strings.HasPrefix(urlPath, prefix+"/") {
			return true
		}
	}
	return false
}

// servesPath reports whether the API set has the custom resource,
// subresource or group version of a path.
func servesPath(info *requestinfo.Info, gv schema.GroupVersion) bool {
	if !info.IsResource {
		return info.Kinds.Serves(gv)
	}
	return info.Target != nil || info.Subresource != "" && info.Kinds.Resource(info.GVR()) != nil
}

// serveAPI serves all paths below /api and /apis: resources and discovery.
func (mux *Mux) serveAPI(w http.ResponseWriter, r *http.Request) {
	info := requestinfo.FromContext(r.Context())
	if info.Delegate != nil {
		info.Delegate.ServeHTTP(w, r)
		return
	}
	root, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	var groupVersion schema.GroupVersion
	if root == "apis" && rest != "" {
		groupVersion.Group, rest, _ = strings.Cut(rest, "/")
		if groupVersion.Group == "" || !info.Kinds.ServesGroup(groupVersion.Group) && !mux.Discovery.HasGroup(groupVersion.Group) {
			http.NotFound(w, r)
			return
		}
	}
	groupVersion.Version, _, _ = strings.Cut(rest, "/")
	if groupVersion.Group != "" && groupVersion.Version != "" && !info.Kinds.BuiltIn(groupVersion.Group) && !servesPath(info, groupVersion) {
		http.NotFound(w, r) // plain text, as for an unknown path
		return
	}
	switch {
	case info.IsResource:
		mux.API.ServeHTTP(w, r)
	case groupVersion.Version != "" && !info.Kinds.Serves(groupVersion):
		mux.API.Error(w, r, status.NoResource())
	case servesAnyMethod(info, root, groupVersion):
		mux.serveDiscovery(w, r, root, groupVersion)
	case r.Method != http.MethodGet:
		mux.API.Error(w, r, status.Method())
	case !mux.API.Media.Supports(r.Header.Get("Accept")):
		mux.API.Error(w, r, status.NoRepresentation(mux.API.Media.Objects()))
	default:
		mux.serveDiscovery(w, r, root, groupVersion)
	}
}

// servesAnyMethod reports whether Kubernetes serves a discovery document for any method. root is
// the first element of the path, api or apis.
func servesAnyMethod(info *requestinfo.Info, root string, gv schema.GroupVersion) bool {
	if gv.Version != "" {
		return !info.Kinds.BuiltIn(gv.Group)
	}
	return root != "api" && gv.Group != apiregistrationv1.GroupName
}

// serveDiscovery serves a discovery document; see servesAnyMethod.
func (mux *Mux) serveDiscovery(w http.ResponseWriter, r *http.Request, root string, gv schema.GroupVersion) {
	switch {
	case gv.Version != "":
		mux.Discovery.ServeGroupVersion(w, r, gv)
	case gv.Group != "":
		mux.Discovery.ServeGroup(w, r, gv.Group)
	case root == "api":
		mux.Discovery.ServeAPIRoot(w, r)
	default:
		mux.Discovery.ServeAPIsRoot(w, r)
	}
}

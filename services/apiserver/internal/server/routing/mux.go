package routing

import (
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/gin-gonic/gin"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/libs/satoken"
	"binnacle/libs/serving"
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

// Routes holds the handlers of paths.
type Routes struct {
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
	Logger   *slog.Logger
}

// Mux routes a request by its path. It passes requests for resources to the API handler. A gin
// engine has the routes of all other paths.
type Mux struct {
	Routes
	engine *gin.Engine
}

// NewMux returns a Mux with the given routes.
func NewMux(r Routes) (*Mux, error) {
	engine, err := serving.NewEngine(r.Logger)
	if err != nil {
		return nil, err
	}
	m := &Mux{Routes: r, engine: engine}
	m.addDocuments()
	m.addHealth()
	m.addDebug(engine.Group("/debug"))
	engine.NoRoute(gin.WrapF(m.serveUnrouted))
	return m, nil
}

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isAPI(r.URL.Path) {
		if info := requestinfo.From(r.Context()); info.IsResource || info.Delegate != nil {
			m.serveAPI(w, r) // resources are data, not routes
			return
		}
	}
	m.engine.ServeHTTP(w, r)
}

// addDocuments adds the routes of discovery, OpenAPI, the version and the token issuer.
func (m *Mux) addDocuments() {
	for _, root := range []string{"/api", "/apis"} {
		m.engine.Any(root, gin.WrapF(m.serveAPI))
		m.engine.Any(root+"/*path", gin.WrapF(m.serveAPI))
	}
	m.engine.Any("/", gin.WrapF(m.servePaths))
	m.engine.Any("/index.html", gin.WrapF(m.servePaths))
	m.engine.Any("/version", gin.WrapF(m.serveVersion))
	m.engine.Any("/version/*path", gin.WrapF(m.serveVersion))
	m.engine.Any("/openapi/*path", gin.WrapH(m.OpenAPI))
	if m.Issuer != nil {
		m.engine.Any(satoken.DiscoveryPath, m.media(api.MediaJSON, m.Issuer.ServeHTTP))
		m.engine.Any(satoken.JWKSPath, m.media(satoken.JWKSMedia, m.Issuer.ServeHTTP))
	}
}

// addHealth adds the routes of health checks, metrics and pages about this process.
func (m *Mux) addHealth() {
	for _, path := range healthPaths {
		m.engine.Any(path, gin.WrapH(m.Health))
		m.engine.Any(path+"/*check", gin.WrapH(m.Health))
	}
	m.engine.Any("/metrics", gin.WrapH(m.Metrics))
	m.engine.Any("/metrics/slis", gin.WrapH(m.SLIs))
	if m.Flagz != nil {
		m.engine.Any("/flagz", gin.WrapH(m.Flagz))
	}
	if m.Statusz != nil {
		m.engine.Any("/statusz", gin.WrapH(m.Statusz))
	}
	if m.LogFiles != "" {
		m.engine.Any("/logs", gin.WrapF(m.serveLogs))
		m.engine.Any("/logs/*file", gin.WrapF(m.serveLogs))
	}
}

// addDebug adds the routes below /debug.
func (m *Mux) addDebug(debug *gin.RouterGroup) {
	if m.Flow != nil {
		debug.Any("/api_priority_and_fairness/:dump", func(g *gin.Context) {
			serveFlowDump(g.Writer, g.Request, g.Param("dump"), m.Flow)
		})
	}
	if m.Profiling {
		debug.Any("/pprof", gin.WrapH(Profiles()))
		debug.Any("/pprof/*profile", gin.WrapH(Profiles()))
		debug.Any("/flags/v", gin.WrapF(m.serveVerbosity))
	}
}

// serveUnrouted serves paths without a route, and methods that gin does not route.
func (m *Mux) serveUnrouted(w http.ResponseWriter, r *http.Request) {
	switch {
	case isAPI(r.URL.Path):
		m.serveAPI(w, r)
	case r.URL.Path == "":
		m.servePaths(w, r)
	default:
		http.NotFound(w, r)
	}
}

// isAPI reports whether a path is that of the API or of its discovery documents.
func isAPI(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
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

// servePaths serves the list of paths.
func (m *Mux) servePaths(w http.ResponseWriter, r *http.Request) { m.Discovery.ServePaths(w, r) }

// serveVersion serves /version. Its errors are Statuses, as in discovery.
func (m *Mux) serveVersion(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/version" && r.URL.Path != "/version/" {
		m.API.Error(w, r, status.NoResource())
		return
	}
	m.serveMedia(w, r, api.MediaJSON, m.Discovery.ServeVersion)
}

// media returns a handler of a document with one media type.
func (m *Mux) media(media string, serve http.HandlerFunc) gin.HandlerFunc {
	return func(g *gin.Context) { m.serveMedia(g.Writer, g.Request, media, serve) }
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

var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// IsHealth reports whether a path is that of a health check.
func IsHealth(path string) bool {
	for _, p := range healthPaths {
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
	op := requestinfo.From(r.Context())
	if op.Delegate != nil {
		op.Delegate.ServeHTTP(w, r)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gv schema.GroupVersion
	if parts[0] == "apis" && len(parts) > 1 {
		gv.Group = parts[1]
		parts = parts[1:]
		if gv.Group == "" || !op.Kinds.ServesGroup(gv.Group) && !m.Discovery.HasGroup(gv.Group) {
			http.NotFound(w, r)
			return
		}
	}
	if len(parts) > 1 {
		gv.Version = parts[1]
	}
	if gv.Group != "" && gv.Version != "" && !op.Kinds.BuiltIn(gv.Group) && !servesPath(op, gv) {
		http.NotFound(w, r) // plain text, as for an unknown path
		return
	}
	switch {
	case op.IsResource:
		m.API.ServeHTTP(w, r)
	case gv.Version != "" && !op.Kinds.Serves(gv):
		m.API.Error(w, r, status.NoResource())
	case anyMethod(op, parts[0], gv):
		m.serveDiscovery(w, r, parts[0], gv)
	case r.Method != http.MethodGet:
		m.API.Error(w, r, status.Method())
	case r.URL.Path == "/api/" && !m.API.Media.Known(r.Header.Get("Accept")):
		m.API.Error(w, r, status.NoRepresentation(m.API.Media.Objects()))
	default:
		m.serveDiscovery(w, r, parts[0], gv)
	}
}

// anyMethod reports whether Kubernetes serves a discovery document for any method. root is api or apis
// if the path names no group.
func anyMethod(op *requestinfo.Info, root string, gv schema.GroupVersion) bool {
	if gv.Version != "" {
		return !op.Kinds.BuiltIn(gv.Group)
	}
	return root != "api" && gv.Group != apiregistrationv1.GroupName
}

// serveDiscovery serves a discovery document; see anyMethod.
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

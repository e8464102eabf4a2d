package routing_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server/routing"
)

// newAPISet returns the built-in kinds and definitions of things.example.com and vms.ext.test.
func newAPISet(t *testing.T) *apiset.Set {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	set := apiset.Builder{}.Set(catalog, 0)
	for _, names := range []registry.Names{
		{Group: "example.com", Version: "v1", Resource: "things", Kind: "Thing", Namespaced: true},
		{Group: "ext.test", Version: "v1", Resource: "vms", Kind: "VM", Namespaced: true},
	} {
		kind := &registry.Kind{Names: names, Virtual: true, Document: &registry.Document{}}
		set = set.WithDefinitions([]apiset.Definition{
			{Resource: schema.GroupResource{Group: names.Group, Resource: names.Resource}, Versions: []*apiset.Resource{{Kind: kind}}},
		}, 1)
	}
	return set
}

// namedHandler is a handler that the test recognizes by its name.
type namedHandler string

func (namedHandler) ServeHTTP(http.ResponseWriter, *http.Request) {}

// TestDelegateServesOnlyUnknownResources checks that this server, an extension server or a peer serves
// a path.
func TestDelegateServesOnlyUnknownResources(t *testing.T) {
	kinds := newAPISet(t)
	extension := func(gv schema.GroupVersion) http.Handler {
		if strings.HasPrefix(gv.Group, "ext.") || gv.Group == "apps" || gv.Empty() {
			return namedHandler("extension")
		}
		return nil
	}
	peer := func(*http.Request, *requestinfo.Info) http.Handler { return namedHandler("peer") }
	for _, test := range []struct {
		path string
		// The expected delegate if both kinds of delegates, only extension servers, or only peers are
		// configured; empty for this server.
		all, extension, peer string
	}{
		{path: "/api/v1/pods"},
		{path: "/apis/apps/v1/deployments"}, // built-in kinds have no delegate
		{path: "/apis/apps/v1"},
		{path: "/apis/apps/v9/deployments", all: "extension", extension: "extension", peer: "peer"},
		{path: "/apis/ext.other/v1/vms", all: "extension", extension: "extension", peer: "peer"},
		{path: "/apis/ext.other/v1", all: "extension", extension: "extension"},
		{path: "/apis/ext.test/v1/vms", all: "extension", extension: "extension"}, // precedes the definition
		{path: "/apis/ext.test/v1/others", all: "extension", extension: "extension", peer: "peer"},
		{path: "/apis/example.com/v1/things"},
		{path: "/apis/example.com/v1/others", all: "peer", peer: "peer"},
		{path: "/apis/none.test/v1/xs", all: "peer", peer: "peer"},
		{path: "/apis/none.test"},
		{path: "/version"},
		// Unknown subresources of known resources are not delegated.
		{path: "/api/v1/namespaces/n/pods/p/unknown"},
		{path: "/apis/example.com/v1/namespaces/n/things/x/unknown"},
		// Paths that a delegate might normalize are not delegated.
		{path: "/apis/ext.other/v1/../../x/y"},
		{path: "/apis/ext.other/v1/namespaces/./xs"},
		{path: "/apis/none.test/v1/namespaces/n/xs/.."},
		{path: "/apis/ext.other/v1/namespaces/n/xs/..x", all: "extension", extension: "extension", peer: "peer"},
		// An empty namespace means all namespaces.
		{path: "/apis/ext.other/v1/namespaces//xs", all: "extension", extension: "extension", peer: "peer"},
		// An empty resource is not delegated.
		{path: "/apis/none.test//xs"},
	} {
		for configured, want := range map[string]string{"all": test.all, "extension": test.extension, "peer": test.peer, "": ""} {
			var delegates routing.Delegates
			if configured == "all" || configured == "extension" {
				delegates.Extension = extension
			}
			if configured == "all" || configured == "peer" {
				delegates.Peer = peer
			}
			r := httptest.NewRequest("GET", "/", nil)
			r.URL.Path = test.path
			info := delegates.Resolve(r, kinds)
			got := ""
			if info.Delegate != nil {
				got = string(info.Delegate.(namedHandler))
			}
			if got != want || got != "" && info.Target != nil {
				t.Errorf("%s with delegates %q: got %q, want %q; target %v", test.path, configured, got, want, info.Target != nil)
			}
		}
	}
}

// documents is a discovery handler that writes the name of the document.
type documents struct{}

func writeText(w http.ResponseWriter, text string) { fmt.Fprint(w, text) }

func (documents) HasGroup(name string) bool                            { return name == "ext.test" || name == "ext.other" }
func (documents) ServeAPIRoot(w http.ResponseWriter, _ *http.Request)  { writeText(w, "api") }
func (documents) ServeAPIsRoot(w http.ResponseWriter, _ *http.Request) { writeText(w, "apis") }
func (documents) ServeGroup(w http.ResponseWriter, _ *http.Request, g string) {
	writeText(w, "group "+g)
}
func (documents) ServeGroupVersion(w http.ResponseWriter, _ *http.Request, gv schema.GroupVersion) {
	writeText(w, "group version "+gv.String())
}
func (documents) ServeVersion(w http.ResponseWriter, _ *http.Request) { writeText(w, "version") }
func (documents) ServePaths(w http.ResponseWriter, _ *http.Request)   { writeText(w, "paths") }

func textHandler(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, text) })
}

// TestMuxRoutesByPath checks the handler of each path. Some paths exist only if they are configured.
func TestMuxRoutesByPath(t *testing.T) {
	kinds := newAPISet(t)
	full := &routing.Mux{
		API:       newErrorAPI(t),
		Discovery: documents{},
		Health:    textHandler("health"),
		Metrics:   textHandler("metrics"),
		SLIs:      textHandler("slis"),
		OpenAPI:   textHandler("openapi"),
		Issuer:    textHandler("issuer"),
		Profiling: true,
		LogFiles:  t.TempDir(),
		Flow: flowcontrol.New(flowcontrol.Options{
			Seats:   1,
			Metrics: flowcontrol.NewMetrics(prometheus.NewRegistry(), 1, 1, time.Now),
		}),
	}
	bare := &routing.Mux{
		API:       full.API,
		Discovery: documents{},
		Health:    full.Health,
		Metrics:   full.Metrics,
		SLIs:      full.SLIs,
		OpenAPI:   full.OpenAPI,
	}
	const none = "404 page not found\n"
	// full and bare are the expected bodies: the text of a handler, the reason of a Status, or "~" and
	// a part of the body. An empty bare is the same as full.
	for _, test := range []struct{ method, path, full, bare string }{
		{method: "GET", path: "/", full: "paths"},
		{method: "GET", path: "/x", full: none},
		{method: "GET", path: "/apix", full: none},
		{method: "GET", path: "/apisx", full: none},
		{method: "GET", path: "/api", full: "api"},
		{method: "GET", path: "/api/", full: "api"},
		{method: "GET", path: "/apis", full: "apis"},
		{method: "GET", path: "/apis/", full: "apis"},
		{method: "GET", path: "/api/v1", full: "group version v1"},
		{method: "GET", path: "/api/v9", full: "NotFound"},
		{method: "GET", path: "/apis/apps", full: "group apps"},
		{method: "GET", path: "/apis/apps/v1", full: "group version apps/v1"},
		{method: "GET", path: "/apis/apps/v9", full: "NotFound"},
		{method: "GET", path: "/apis/apps/", full: "group apps"},
		{method: "GET", path: "/apis/example.com", full: "group example.com"},
		{method: "GET", path: "/apis/example.com/v1", full: "group version example.com/v1"},
		{method: "GET", path: "/apis/example.com/v9", full: none},
		{method: "GET", path: "/apis/example.com/v1/others", full: none},
		{method: "GET", path: "/apis/example.com/v1/namespaces/n/others/x/y", full: none},
		{method: "GET", path: "/apis/example.com/v1/namespaces/n/things/x/y", full: "NotFound"},
		{method: "GET", path: "/apis/ext.test", full: "group ext.test"},
		{method: "GET", path: "/apis/none.test", full: none},
		{
			method: "GET",
			path:   "/apis//v1",
			full:   none,
		},
		{method: "GET", path: "/apis/none.test/v1/xs", full: none},
		{method: "GET", path: "/apis/apps/v1/others", full: "NotFound"},
		{method: "GET", path: "/api/v1/others", full: "NotFound"},
		{method: "POST", path: "/api", full: "MethodNotAllowed"},
		{method: "POST", path: "/apis", full: "apis"},
		{method: "POST", path: "/apis/apps", full: "group apps"},
		{method: "POST", path: "/apis/example.com/v1", full: "group version example.com/v1"},
		{method: "GET", path: "/index.html", full: "paths"},
		{method: "POST", path: "/apis/apps/v1", full: "MethodNotAllowed"},
		{method: "POST", path: "/apis/apps/v9", full: "NotFound"},
		{method: "GET", path: "/healthz", full: "health"},
		{method: "GET", path: "/healthz/x", full: "health"},
		{method: "GET", path: "/livez", full: "health"},
		{method: "GET", path: "/readyz/", full: "health"},
		{method: "GET", path: "/healthzx", full: none},
		{method: "GET", path: "/metrics", full: "metrics"},
		{method: "GET", path: "/metrics/", full: none},
		{method: "GET", path: "/metrics/slis", full: "slis"},
		{method: "GET", path: "/version", full: "version"},
		{method: "GET", path: "/openapi/v2", full: "openapi"},
		{method: "GET", path: "/openapi", full: none},
		{method: "GET", path: "/.well-known/openid-configuration", full: "issuer", bare: none},
		{method: "GET", path: "/openid/v1/jwks", full: "issuer", bare: none},
		{method: "GET", path: "/openid/v1", full: none},
		{method: "GET", path: "/logs/", full: "~<pre>", bare: none},
		{method: "GET", path: "/logs", full: "~<pre>", bare: none},
		{method: "GET", path: "/logsx", full: none},
		{method: "GET", path: "/debug/pprof/cmdline", full: "Unknown profile\n", bare: none},
		{method: "GET", path: "/debug/x", full: none},
		{
			method: "GET",
			path:   "/debug/api_priority_and_fairness/dump_priority_levels",
			full:   "~PriorityLevelName,",
			bare:   none,
		},
		{method: "GET", path: "/debug/api_priority_and_fairness/x", full: none},
		{method: "GET", full: "paths"},
		{method: "GET", path: "/apis/ext.other", full: "group ext.other"},
		{method: "OPTIONS", path: "/apis/example.com/v1/namespaces/n/things", full: "MethodNotAllowed"},
		{
			method: "GET",
			path:   "/apis/example.com/v1/namespaces//things",
			full:   "MethodNotAllowed",
		},
	} {
		if test.bare == "" {
			test.bare = test.full
		}
		for mux, want := range map[*routing.Mux]string{full: test.full, bare: test.bare} {
			r := httptest.NewRequest(test.method, "/", nil)
			r.URL.Path = test.path
			r = r.WithContext(requesttest.WithInfo(r.Context(), requestinfo.Resolve(r, kinds)))
			response := httptest.NewRecorder()
			mux.ServeHTTP(response, r)
			if got := response.Body.String(); got != want &&
				(len(got) < 60 || !strings.Contains(got, `"reason":"`+want+`"`)) &&
				(want[0] != '~' || !strings.Contains(got, want[1:])) {
				t.Errorf("%s %s: got %q, want %q", test.method, test.path, got, want)
			}
		}
	}
	// A delegate precedes the handler of the path.
	r := httptest.NewRequest("GET", "/apis/ext.test/v1/vms", nil)
	info := requestinfo.Resolve(r, kinds)
	info.Delegate = textHandler("delegate")
	response := httptest.NewRecorder()
	full.ServeHTTP(response, r.WithContext(requesttest.WithInfo(r.Context(), info)))
	if response.Body.String() != "delegate" {
		t.Errorf("delegated path: got %s, want delegate", response.Body)
	}
}

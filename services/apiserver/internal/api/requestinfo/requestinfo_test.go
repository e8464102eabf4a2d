package requestinfo_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
)

// fullCatalog returns the catalog of all built-in kinds, and the set of their resources.
func fullCatalog(t testing.TB) (*registry.Catalog, *apiset.Set) {
	t.Helper()
	c, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	return c, apiset.Builder{}.Set(c, 0)
}

// describe returns a request info in one line: the verb, the group version, the namespace, and the
// resource with the name and the subresource. The line is in brackets if the info has no target.
func describe(o *requestinfo.Info) string {
	if !o.IsResource {
		return o.Verb + " -"
	}
	parts := []string{o.Verb, o.Group + "/" + o.Version, o.Namespace, o.Resource}
	for _, p := range []string{o.Name, o.Subresource} {
		if p != "" {
			parts[3] += "/" + p
		}
	}
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
	if o.Target == nil {
		return "[" + text + "]"
	}
	return text
}

// resolveCase is a request. want is its Info as describe returns it.
type resolveCase struct{ method, path, want string }

// checkResolved resolves each request with a set of kinds.
func checkResolved(t *testing.T, kinds *apiset.Set, cases []resolveCase) {
	t.Helper()
	for _, test := range cases {
		if got := describe(requestinfo.Resolve(httptest.NewRequest(test.method, test.path, nil), kinds)); got != test.want {
			t.Errorf("%s %s: got %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

// TestResolveNamesVerbAndResource checks the verb and the resource of requests by their method and
// path.
func TestResolveNamesVerbAndResource(t *testing.T) {
	_, kinds := fullCatalog(t)
	checkResolved(t, kinds, []resolveCase{
		{method: "GET", path: "/healthz", want: "get -"},
		{method: "POST", path: "/", want: "post -"},
		{method: "GET", path: "/api", want: "get -"},
		{method: "GET", path: "/api/v1", want: "get -"},
		{method: "GET", path: "/apis/apps/v1", want: "get -"},
		{method: "GET", path: "/other/apps/v1/deployments", want: "get -"},
		{method: "GET", path: "/apix/v1/pods", want: "get -"},
		{method: "GET", path: "/api/v1/pods", want: "list /v1 pods"},
		{method: "GET", path: "/api/v1/pods/", want: "list /v1 pods"},
		{method: "GET", path: "/api/v1/namespaces", want: "list /v1 namespaces"},
		{method: "GET", path: "/api/v1/namespaces/a", want: "get /v1 a namespaces/a"},
		{method: "PUT", path: "/api/v1/namespaces/a/finalize", want: "update /v1 a namespaces/a/finalize"},
		{method: "PATCH", path: "/api/v1/namespaces/a/status", want: "patch /v1 a namespaces/a/status"},
		{method: "GET", path: "/api/v1/namespaces/a/pods", want: "list /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?watch=1", want: "watch /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?watch=0", want: "list /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?watch=false", want: "list /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?watch", want: "watch /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods/p?watch=true", want: "get /v1 a pods/p"},
		{method: "GET", path: "/api/v1/namespaces/a/pods/p/log", want: "get /v1 a pods/p/log"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", want: "list /v1 a pods/p"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.name!%3Dp", want: "list /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3D..", want: "list /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3D.", want: "list /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp/log", want: "list /v1 a pods"},
		{method: "GET", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp%2525", want: "list /v1 a pods"},
		{method: "DELETE", path: "/api/v1/namespaces/a/pods", want: "deletecollection /v1 a pods"},
		{method: "DELETE", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", want: "deletecollection /v1 a pods"},
		{method: "DELETE", path: "/apis/apps/v1/namespaces/a/deployments/d", want: "delete apps/v1 a deployments/d"},
		{method: "POST", path: "/apis/apps/v1/namespaces/a/deployments", want: "create apps/v1 a deployments"},
		{method: "HEAD", path: "/api/v1/nodes/n", want: "get /v1 nodes/n"},
		{method: "OPTIONS", path: "/api/v1/nodes", want: "/v1 nodes"},
		{method: "GET", path: "/api/v1/namespaces//pods", want: "list /v1 pods"},
		{method: "GET", path: "/api/v1/namespaces//pods/p", want: "get /v1 pods/p"},
		{method: "GET", path: "/api/v1/nodes/n/proxy/x//y", want: "get /v1 nodes/n/proxy"},
	})
	info := requestinfo.Resolve(httptest.NewRequest("GET", "/api/v1/nodes/n/proxy/x//y", nil), kinds)
	if want := []string{"x", "", "y"}; !slices.Equal(info.Subpath, want) {
		t.Errorf("got proxied path %q, want %q", info.Subpath, want)
	}
}

// TestResolveReadsDeprecatedWatchPaths checks the resources of paths with the prefix watch.
func TestResolveReadsDeprecatedWatchPaths(t *testing.T) {
	_, kinds := fullCatalog(t)
	checkResolved(t, kinds, []resolveCase{
		{method: "GET", path: "/api/v1/watch/pods", want: "watch /v1 pods"},
		{method: "GET", path: "/api/v1/watch/namespaces/a/pods", want: "watch /v1 a pods"},
		{method: "GET", path: "/api/v1/watch/namespaces/a/pods/p", want: "watch /v1 a pods/p"},
		{method: "GET", path: "/api/v1/watch/namespaces/a", want: "watch /v1 a namespaces/a"},
		{method: "GET", path: "/api/v1/watch/nodes/n", want: "watch /v1 nodes/n"},
		{method: "GET", path: "/api/v1/watch/namespaces/a/pods/p/log", want: "[watch /v1 a pods/p/log]"},
		{method: "GET", path: "/api/v1/watch/namespaces/a/status", want: "[watch /v1 a namespaces/a/status]"},
		{method: "GET", path: "/api/v1/watch/pods/p", want: "[watch /v1 pods/p]"},
		{method: "GET", path: "/api/v1/watch", want: "[list /v1 watch]"},
		{method: "GET", path: "/api/v1/watch/watch/pods", want: "[watch /v1 watch/pods]"},
	})
}

// TestResolveFindsNoTargetForUnservedPaths checks paths that resemble a resource but are not served.
func TestResolveFindsNoTargetForUnservedPaths(t *testing.T) {
	_, kinds := fullCatalog(t)
	checkResolved(t, kinds, []resolveCase{
		{method: "GET", path: "/api/v1/namespaces/a/namespaces/b", want: "[get /v1 a namespaces/b]"},
		{method: "DELETE", path: "/api/v1/namespaces/a/namespaces/a", want: "[delete /v1 a namespaces/a]"},
		{method: "GET", path: "/api/v1/namespaces/a/namespaces", want: "[list /v1 a namespaces]"},
		{method: "PUT", path: "/api/v1/namespaces/a/namespaces/b/finalize", want: "[update /v1 a namespaces/b/finalize]"},
		{method: "GET", path: "/api/v1/namespaces/a/nodes/n", want: "[get /v1 a nodes/n]"},
		{method: "GET", path: "/api/v1/namespaces/a/nodes", want: "[list /v1 a nodes]"},
		{method: "GET", path: "/api/v1/pods/p", want: "[get /v1 pods/p]"},
		{method: "GET", path: "/api/v1/namespaces/a//p", want: "[get /v1 a /p]"},
		{method: "GET", path: "/api/v1/namespaces/a/pods//log", want: "[list /v1 a pods/log]"},
		{method: "GET", path: "/api/v1/namespaces/a/pods/p/log/x", want: "[get /v1 a pods/p/log]"},
		{method: "GET", path: "/api/v1/namespaces/a/pods/p/scale", want: "[get /v1 a pods/p/scale]"},
		{method: "GET", path: "/apis//v1/pods", want: "[list /v1 pods]"},
		{method: "GET", path: "/api//pods", want: "[list / pods]"},
		{method: "GET", path: "/api/v1/proxy/nodes/n", want: "[proxy /v1 nodes/n]"},
		{method: "DELETE", path: "/api/v1/proxy/namespaces/a/pods/p/status", want: "[proxy /v1 a pods/p]"},
		{method: "GET", path: "/api/v2/pods", want: "[list /v2 pods]"},
		{method: "GET", path: "/apis/v1/pods/x", want: "[list v1/pods x]"},
	})
}

// TestWatchesLogsStreamsAndProxiesAreLongRunning checks that only served watches, logs, streams and
// proxied requests count as long-running.
func TestWatchesLogsStreamsAndProxiesAreLongRunning(t *testing.T) {
	_, kinds := fullCatalog(t)
	for path, want := range map[string]bool{
		"GET /api/v1/pods?watch=1": true, "GET /api/v1/watch/pods": true, "POST /api/v1/namespaces/a/pods/p/exec": true,
		"GET /api/v1/namespaces/a/pods/p/log": true, "PUT /api/v1/nodes/n/proxy/x": true,
		"GET /api/v1/pods": false, "POST /api/v1/pods?watch=1": false, "DELETE /api/v1/watch/pods": false,
		"GET /api/v1/namespaces/a/pods/p?watch=1": false,
		"POST /api/v1/proxy/namespaces/a/pods":    false, "GET /api/v1/namespaces/a/configmaps/p/log": false,
		"GET /api/v1/namespaces/a/nodes/n/proxy": false,
		"GET /api/v1/componentstatuses?watch=1":  false, "GET /apis/a/b/c/d/proxy": false, "GET /apis/a/b/c?watch=1": false,
		"GET /watch": false,
	} {
		method, target, _ := strings.Cut(path, " ")
		if got := requestinfo.Resolve(httptest.NewRequest(method, target, nil), kinds).LongRunning(); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// authorizedPath returns the path of the resource that is authorized. isWatchPath adds the deprecated
// prefix watch.
func authorizedPath(info *requestinfo.Info, isWatchPath bool) string {
	path := "api/" + info.Version
	if info.Group != "" {
		path = "apis/" + info.Group + "/" + info.Version
	}
	if isWatchPath {
		path += "/watch"
	}
	if info.Target.Namespaced && info.Namespace != "" {
		path += "/namespaces/" + info.Namespace
	}
	path += "/" + info.Target.Resource
	if info.Name != "" && (!info.Collection || isWatchPath) {
		path += "/" + info.Name
	}
	if info.Sub != nil {
		path += "/" + info.Sub.Name
	}
	return strings.TrimRight(strings.Join(append([]string{path}, info.Subpath...), "/"), "/")
}

// requireSameOperation checks that the operation that the server executes for a request is the
// operation that it authorizes.
func requireSameOperation(t interface{ Errorf(string, ...any) }, r *http.Request, info *requestinfo.Info) {
	if info.Target == nil {
		return
	}
	isWatchPath := strings.Contains("/"+strings.Trim(r.URL.Path, "/"), "/"+info.Version+"/watch/")
	if got, want := authorizedPath(info, isWatchPath), strings.Trim(r.URL.Path, "/"); got != want {
		t.Errorf("%s %q: got path %q, want %v", r.Method, r.URL.Path, got, want)
	}
	if info.Target.GVR() != info.GVR() {
		t.Errorf("%q: got it authorized for %s, executed on %s, want one resource", r.URL.Path, info.GVR(), info.Target.GVR())
	}
	sub := ""
	if info.Sub != nil {
		sub = info.Sub.Name
	}
	if sub != info.Subresource {
		t.Errorf("%q: got it authorized for subresource %q, executed on %q, want the same", r.URL.Path, info.Subresource, sub)
	}
	isOwnNamespace := info.Resource == "namespaces" && info.Namespace == info.Name
	if !info.Target.Namespaced && info.Namespace != "" && !isOwnNamespace {
		t.Errorf("%q: got it authorized in namespace %q, executed in the cluster scope, want the same scope", r.URL.Path, info.Namespace)
	}
	wanted := map[string][]string{"POST": {"create"}, "PUT": {"update"}, "PATCH": {"patch"}, "DELETE": {"delete"}, "GET": {"get"}, "HEAD": {"get"}}[r.Method]
	switch {
	case isWatchPath:
		wanted = []string{"watch"}
	case info.Collection && info.Verb != "create":
		wanted = map[string][]string{"DELETE": {"deletecollection"}, "GET": {"list", "watch"}, "HEAD": {"list", "watch"}, "PUT": {"update"}, "PATCH": {"patch"}}[r.Method]
	}
	if wanted == nil {
		wanted = []string{""}
	}
	if !slices.Contains(wanted, info.Verb) {
		t.Errorf("%s %q: got verb %q, want one of %q", r.Method, r.URL, info.Verb, wanted)
	}
	if info.Collection && !isWatchPath && info.Name != "" {
		sel, err := fields.ParseSelector(info.FieldSelector)
		if name, ok := sel.RequiresExactMatch("metadata.name"); err != nil || !ok || name != info.Name || info.Verb == "deletecollection" {
			t.Errorf("%s %q: authorized for the name %q only, want %v", info.Verb, r.URL, info.Name, name)
		}
	}
}

// TestAuthorizedOperationIsExecuted checks that random paths, which are modified paths of
// resources, are executed as they are authorized, and that every path in discovery has a target.
func TestAuthorizedOperationIsExecuted(t *testing.T) {
	catalog, kinds := fullCatalog(t)
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(catalog.Kinds()).Draw(t, "kind")
		other := rapid.SampledFrom(catalog.Kinds()).Draw(t, "other kind")
		var segments []string
		if kind.Group == "" {
			segments = []string{"api", kind.Version}
		} else {
			segments = []string{"apis", kind.Group, kind.Version}
		}
		if p := rapid.SampledFrom([]string{"", "", "", "watch", "proxy"}).Draw(t, "prefix"); p != "" {
			segments = append(segments, p)
		}
		if rapid.Bool().Draw(t, "in a namespace") {
			segments = append(segments, "namespaces",
				rapid.SampledFrom([]string{"a", "b", "status", "namespaces", "watch", "..", "%2F"}).Draw(t, "namespace"))
		}
		segments = append(segments, kind.Resource)
		name := rapid.SampledFrom([]string{"", "b", "a", "watch", "proxy", "namespaces"}).Draw(t, "name")
		if name != "" {
			segments = append(segments, name)
		}
		if subs := slices.Concat(kind.Subresources, other.Subresources); name != "" && len(subs) > 0 && rapid.Bool().Draw(t, "below") {
			segments = append(segments, rapid.SampledFrom(subs).Draw(t, "sub-resource").Name)
		}
		for range rapid.IntRange(0, 2).Draw(t, "bends") {
			at := rapid.IntRange(0, len(segments)).Draw(t, "at")
			inserted := rapid.SampledFrom([]string{
				"", "x", "a/b", "namespaces", "namespaces/c", "watch", "proxy", "status", other.Resource, ".", "..",
			}).Draw(t, "more")
			segments = slices.Insert(segments, at, inserted)
		}
		begin := rapid.SampledFrom([]string{"/", "//"}).Draw(t, "begin")
		end := rapid.SampledFrom([]string{"", "", "/", "//"}).Draw(t, "end")
		path := begin + strings.Join(segments, "/") + end
		method := rapid.SampledFrom([]string{"GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "FROB"}).
			Draw(t, "method")
		r := httptest.NewRequest(method, "/", nil)
		r.URL.Path = path
		r.URL.RawQuery = rapid.SampledFrom([]string{
			"", "watch=1", "watch", "watch=false", "dryRun=All",
			"fieldSelector=metadata.name%3Db",
			"fieldSelector=metadata.name%3Db,metadata.name%3Dc",
			"fieldSelector=metadata.name!%3Db",
			"fieldSelector=metadata.name%3D..&watch=1",
			"fieldSelector=%3D%3D",
			"labelSelector=a%3Db",
		}).Draw(t, "query")
		info := requestinfo.Resolve(r, kinds)
		if info.Target != nil {
			hits++
		}
		requireSameOperation(t, r, info)
	})
	if hits == 0 && !testing.Short() { // the few paths of the short form may all have no target
		t.Error("no path with a target, want one")
	}
	// Every path in discovery has a target.
	for _, k := range catalog.Kinds() {
		info := &requestinfo.Info{Group: k.Group, Version: k.Version, Target: kinds.Resource(k.GVR()), Name: "n"}
		if k.Namespaced {
			info.Namespace = "a"
		}
		for i := -1; i < len(k.Subresources); i++ {
			info.Sub = nil
			if i >= 0 {
				info.Sub = &k.Subresources[i]
			}
			path := "/" + authorizedPath(info, false)
			got := requestinfo.Resolve(httptest.NewRequest("GET", path, nil), kinds)
			if got.Target != info.Target || got.Sub != info.Sub || got.Name != "n" {
				t.Errorf("%s: got target %v, subresource %v, name %q, want %v, %v, n",
					path, got.Target, got.Sub, got.Name, info.Target, info.Sub)
			}
		}
	}
}

// FuzzResolve checks that any method, path and query are executed as they are authorized.
func FuzzResolve(f *testing.F) {
	_, kinds := fullCatalog(f)
	f.Add("GET", "/api/v1/namespaces/a/pods/p/log", "watch=1&fieldSelector=metadata.name%3Dp")
	f.Add("DELETE", "/api/v1/namespaces/a/namespaces/b", "")
	f.Add("GET", "/api/v1/watch/namespaces/a/pods/p/log", "")
	f.Add("PATCH", "/api/v1/proxy/namespaces/a/pods", "")
	f.Add("GET", "//apis///", "")
	f.Add("GET", "/apis//v1/pods", "fieldSelector=metadata.name%3D%2F")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL.Path, r.URL.RawQuery = method, path, query
		requireSameOperation(t, r, requestinfo.Resolve(r, kinds))
	})
}

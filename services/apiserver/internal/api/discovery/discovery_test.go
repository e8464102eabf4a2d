package discovery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// groups are the built-in groups in the order of the reference server.
var groups = []registry.Group{
	{Name: "", Versions: []string{"v1"}, Priority: 18000},
	{Name: "apiregistration.k8s.io", Versions: []string{"v1"}, Priority: 18000},
	{Name: "apps", Versions: []string{"v1"}, Priority: 17800},
	{Name: "events.k8s.io", Versions: []string{"v1"}, Priority: 17750},
	{Name: "authentication.k8s.io", Versions: []string{"v1"}, Priority: 17700},
	{Name: "authorization.k8s.io", Versions: []string{"v1"}, Priority: 17600},
	{Name: "autoscaling", Versions: []string{"v2", "v1"}, Priority: 17500},
	{Name: "batch", Versions: []string{"v1"}, Priority: 17400},
	{Name: "certificates.k8s.io", Versions: []string{"v1"}, Priority: 17300},
	{Name: "networking.k8s.io", Versions: []string{"v1"}, Priority: 17200},
	{Name: "policy", Versions: []string{"v1"}, Priority: 17100},
	{Name: "rbac.authorization.k8s.io", Versions: []string{"v1"}, Priority: 17000},
	{Name: "storage.k8s.io", Versions: []string{"v1"}, Priority: 16800},
	{Name: "admissionregistration.k8s.io", Versions: []string{"v1"}, Priority: 16700},
	{Name: "apiextensions.k8s.io", Versions: []string{"v1"}, Priority: 16700},
	{Name: "scheduling.k8s.io", Versions: []string{"v1"}, Priority: 16600},
	{Name: "coordination.k8s.io", Versions: []string{"v1"}, Priority: 16500},
	{Name: "node.k8s.io", Versions: []string{"v1"}, Priority: 16300},
	{Name: "discovery.k8s.io", Versions: []string{"v1"}, Priority: 16200},
	{Name: "flowcontrol.apiserver.k8s.io", Versions: []string{"v1"}, Priority: 16100},
}

// catalog declares the recorded resources of the reference server.
func catalog(t testing.TB) *registry.Catalog {
	t.Helper()
	var facts []struct {
		Group, Version, Resource, Kind, Scope, Singular string
		Verbs, ShortNames, Categories                   []string
		Subresources                                    []struct {
			Name, Kind, Group, Version string
			Verbs                      []string
		}
	}
	load(t, "resources.json", &facts)
	var kinds []*registry.Kind
	for _, fact := range facts {
		kind := &registry.Kind{
			Names: registry.Names{
				Group: fact.Group, Version: fact.Version, Resource: fact.Resource, Singular: fact.Singular, Kind: fact.Kind,
				ShortNames: fact.ShortNames, Categories: fact.Categories, Namespaced: fact.Scope == "Namespaced",
			},
			Verbs:  fact.Verbs,
			Stored: registry.StorageForm{Prefix: fact.Resource},
		}
		kind.Virtual = !slices.Contains(fact.Verbs, "delete")
		switch {
		case fact.Group == "autoscaling":
			kind.Stored.Version = schema.GroupVersion{Group: "autoscaling", Version: "v2"}
		case fact.Group == "events.k8s.io":
			kind.Stored.Version = schema.GroupVersion{Version: "v1"}
		case fact.Resource == "ipaddresses", fact.Resource == "servicecidrs", fact.Resource == "customresourcedefinitions":
			kind.Stored.Version = schema.GroupVersion{Group: fact.Group, Version: "v1beta1"}
		}
		for _, s := range fact.Subresources {
			kind.Subresources = append(kind.Subresources, registry.Subresource{
				Name: s.Name, Verbs: s.Verbs, GVK: schema.GroupVersionKind{Group: s.Group, Version: s.Version, Kind: s.Kind},
			})
		}
		kinds = append(kinds, kind)
	}
	c, err := registry.NewCatalog(groups, kinds)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// load decodes a JSON file in testdata, which was recorded from kube-apiserver.
func load(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// writeError stands in for the response writer of the server.
func writeError(w http.ResponseWriter, _ *http.Request, err error) {
	st := status.FromError(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(st.Code))
	_ = json.NewEncoder(w).Encode(st)
}

// handler selects the document of a path like the server's router.
func handler(documents *discovery.Documents) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		switch {
		case parts[0] == "version":
			documents.ServeVersion(w, r)
		case parts[0] == "":
			documents.ServePaths(w, r)
		case parts[0] == "api" && len(parts) == 1:
			documents.ServeAPIRoot(w, r)
		case parts[0] == "api":
			documents.ServeGroupVersion(w, r, schema.GroupVersion{Version: parts[1]})
		case len(parts) == 1:
			documents.ServeAPIsRoot(w, r)
		case len(parts) == 2:
			documents.ServeGroup(w, r, parts[1])
		default:
			documents.ServeGroupVersion(w, r, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		}
	})
}

// serve returns the documents of the catalog and their handler.
func serve(t testing.TB, options ...discovery.Option) (*discovery.Documents, http.Handler) {
	t.Helper()
	documents, err := discovery.New(catalog(t), writeError, options...)
	if err != nil {
		t.Fatal(err)
	}
	return documents, handler(documents)
}

// get requests a path. header holds header fields, each name followed by its value.
func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// response is a recorded response.
type response struct {
	Status  int
	Headers http.Header
	Body    any
}

// check compares a response with a recorded one.
func check(t *testing.T, responseRecorder *httptest.ResponseRecorder, want response) {
	t.Helper()
	if responseRecorder.Code != want.Status {
		t.Errorf("got status %d, want %d", responseRecorder.Code, want.Status)
	}
	if got, want := responseRecorder.Header().Get("Content-Type"), want.Headers.Get("Content-Type"); got != want {
		t.Errorf("got content type %q, want %q", got, want)
	}
	if text, ok := want.Body.(string); ok {
		if responseRecorder.Body.String() != text {
			t.Errorf("body\n got %s\nwant %s", responseRecorder.Body, text)
		}
		return
	}
	var got any
	if err := json.Unmarshal(responseRecorder.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want.Body) {
		g, _ := json.MarshalIndent(got, "", " ")
		e, _ := json.MarshalIndent(want.Body, "", " ")
		t.Errorf("body\n got %s\nwant %s", g, e)
	}
}

// TestResourcesEqualReference checks that the resource lists equal those of kube-apiserver.
func TestResourcesEqualReference(t *testing.T) {
	_, h := serve(t)
	for _, file := range []string{"resources-other.json", "resources-workload.json"} {
		var wants []response
		load(t, file, &wants)
		for _, want := range wants {
			gv := want.Body.(map[string]any)["groupVersion"].(string)
			path := "/apis/" + gv
			if gv == "v1" {
				path = "/api/v1"
			}
			t.Run(gv, func(t *testing.T) { check(t, get(h, path), want) })
		}
	}
}

// TestRootsEqualReference checks that the lists of groups and versions equal those of kube-apiserver.
// The indexes below are positions of the responses in the recording.
func TestRootsEqualReference(t *testing.T) {
	_, handler := serve(t, discovery.WithServerAddress("10.9.8.7:6443"))
	var wants []response
	load(t, "roots.json", &wants)

	t.Run("core versions", func(t *testing.T) {
		want := wants[0]
		want.Body.(map[string]any)["serverAddressByClientCIDRs"].([]any)[0].(map[string]any)["serverAddress"] = "10.9.8.7:6443"
		check(t, get(handler, "/api"), want)
	})
	t.Run("groups", func(t *testing.T) {
		// The recording lists the groups one by one.
		body := wants[1].Body.(map[string]any)
		list := []any{}
		for i := 0; body[fmt.Sprintf("groups.%d", i)] != nil; i++ {
			list = append(list, body[fmt.Sprintf("groups.%d", i)])
			delete(body, fmt.Sprintf("groups.%d", i))
		}
		body["groups"] = list
		check(t, get(handler, "/apis"), wants[1])
	})
	for i, path := range map[int]string{2: "/apis/apps", 3: "/apis/autoscaling", 5: "/apis/nope.example"} {
		t.Run(path, func(t *testing.T) { check(t, get(handler, path), wants[i]) })
	}
	t.Run("yaml", func(t *testing.T) { check(t, get(handler, "/apis/policy", "Accept", "application/yaml"), wants[11]) })
	t.Run("unknown version", func(t *testing.T) {
		responseRecorder := get(handler, "/apis/apps/v9")
		var got metav1.Status
		if err := json.Unmarshal(responseRecorder.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		want := wants[6].Body.(map[string]any)
		if responseRecorder.Code != wants[6].Status || got.Message != want["message"] || string(got.Reason) != want["reason"] {
			t.Errorf("got %d %+v, want %v", responseRecorder.Code, got, wants[6].Status)
		}
	})
}

// TestVersionEndpointReports133 checks the versions that /version reports.
func TestVersionEndpointReports133(t *testing.T) {
	_, h := serve(t)
	var info map[string]string
	w := get(h, "/version")
	if err := json.Unmarshal(w.Body.Bytes(), &info); err != nil {
		t.Fatal(err)
	}
	v, err := version.ParseSemantic(info["gitVersion"])
	if err != nil || v.Major() != 1 || v.Minor() != 33 {
		t.Errorf("got gitVersion %q, %v, want 1.33", info["gitVersion"], err)
	}
	if info["major"] != "1" || info["minor"] != "33" || info["minCompatibilityMinor"] != "32" {
		t.Errorf("got version %v, want 1.33, compatible with 32", info)
	}
}

// TestRootListsSortedPaths checks that / lists each path once, in order.
func TestRootListsSortedPaths(t *testing.T) {
	_, h := serve(t, discovery.WithPaths(func() []string { return []string{"/metrics", "/healthz", "/version"} }))
	var got metav1.RootPaths
	if err := json.Unmarshal(get(h, "/").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(got.Paths) || len(slices.Compact(slices.Clone(got.Paths))) != len(got.Paths) {
		t.Errorf("got paths %v, want them sorted and unique", got.Paths)
	}
	for _, p := range []string{"/api", "/api/v1", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1", "/healthz", "/metrics", "/version"} {
		if !slices.Contains(got.Paths, p) {
			t.Errorf("got paths %v, want %s among them", got.Paths, p)
		}
	}
	const roots, groupPaths, extraVersion, otherPaths = 4, 2 * 19, 1, 3 // each group has two paths, autoscaling a third
	if want := roots + groupPaths + extraVersion + otherPaths; len(got.Paths) != want {
		t.Errorf("got %d paths, want %d: %v", len(got.Paths), want, got.Paths)
	}
}

// widgets returns group versions of custom resources and extension servers. Some are in new groups,
// two in the built-in group apps.
func widgets() []discovery.GroupVersion {
	kind := &registry.Kind{
		Names: registry.Names{
			Group: "example.com", Version: "v1", Resource: "widgets", Singular: "widget", Kind: "Widget",
			Namespaced: true, ShortNames: []string{"w"},
		},
		Subresources: []registry.Subresource{{Name: "status", GVK: schema.GroupVersionKind{Kind: "Widget"}, Verbs: []string{"get"}}},
	}
	return []discovery.GroupVersion{
		{
			Group:           "example.com",
			Version:         "v1beta1",
			GroupPriority:   1000,
			VersionPriority: 100,
			Resources:       discovery.Resources([]*registry.Kind{kind}),
		},
		{
			Group:           "example.com",
			Version:         "v1",
			GroupPriority:   1000,
			VersionPriority: 100,
			Resources:       discovery.Resources([]*registry.Kind{kind}),
		},
		{Group: "a.example.com", Version: "v1", GroupPriority: 1000, VersionPriority: 100, Stale: true},
		{Group: "first.example.com", Version: "v1", GroupPriority: 20000, VersionPriority: 100},
		{Group: "apps", Version: "v2alpha1", GroupPriority: 1, VersionPriority: 1},
		{Group: "apps", Version: "v1", GroupPriority: 1, VersionPriority: 1},
	}
}

// TestReplaceAddsAndRemovesGroups checks the documents after a group of custom resources was added,
// and after it was removed.
func TestReplaceAddsAndRemovesGroups(t *testing.T) {
	documents, handler := serve(t)
	if documents.HasGroup("example.com") {
		t.Error("HasGroup(example.com) before it was added = true, want false")
	}
	documents.Replace(widgets())
	if !documents.HasGroup("example.com") {
		t.Error("HasGroup(example.com) after it was added = false, want true")
	}
	var list metav1.APIGroupList
	if err := json.Unmarshal(get(handler, "/apis").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if n := list.Groups[0].Name; n != "first.example.com" {
		t.Errorf("got first group %s, want %q", n, "first.example.com")
	}
	last := list.Groups[len(list.Groups)-2:]
	if last[0].Name != "a.example.com" || last[1].Name != "example.com" || last[1].PreferredVersion.Version != "v1" {
		t.Errorf("got last groups %v, want a.example.com, then example.com with v1 preferred", last)
	}
	var apps metav1.APIGroup
	if err := json.Unmarshal(get(handler, "/apis/apps").Body.Bytes(), &apps); err != nil {
		t.Fatal(err)
	}
	if len(apps.Versions) != 2 || apps.PreferredVersion.Version != "v1" {
		t.Errorf("got group apps %+v, want 2 versions, v1 preferred", apps)
	}
	var resources metav1.APIResourceList
	if err := json.Unmarshal(get(handler, "/apis/example.com/v1").Body.Bytes(), &resources); err != nil {
		t.Fatal(err)
	}
	if len(resources.APIResources) != 2 || resources.APIResources[1].Name != "widgets/status" ||
		resources.APIResources[1].Kind != "Widget" {
		t.Errorf("got resources %+v, want widgets and widgets/status of Widget", resources)
	}
	documents.Replace(nil)
	if w := get(handler, "/apis/example.com"); w.Code != http.StatusNotFound {
		t.Errorf("removed group: got %d, want %v", w.Code, http.StatusNotFound)
	}
}

// TestGroupListFollowsAPIServices checks that groups of equal priority are ordered by their
// APIServices in the group list, and by name in aggregated discovery.
func TestGroupListFollowsAPIServices(t *testing.T) {
	documents, h := serve(t)
	var all []discovery.GroupVersion
	for _, v := range []string{"v1alpha1.a.test", "v1.b.test", "v2.a.test", "v1alpha1.c.test", "v1.c.test"} {
		version, group, _ := strings.Cut(v, ".")
		all = append(all, discovery.GroupVersion{Group: group, Version: version, GroupPriority: 1000, VersionPriority: 100})
	}
	documents.Replace(all)
	var list metav1.APIGroupList
	if err := json.Unmarshal(get(h, "/apis").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range list.Groups[len(list.Groups)-3:] {
		names = append(names, g.Name)
	}
	if got := strings.Join(names, " "); got != "b.test c.test a.test" {
		t.Errorf("got group list %s, want %q", got, "b.test c.test a.test")
	}
}

// TestClientReadsPlainAndAggregatedForm checks that client-go reads both the plain and the
// aggregated form.
func TestClientReadsPlainAndAggregatedForm(t *testing.T) {
	d, h := serve(t)
	d.Replace(widgets())
	server := httptest.NewServer(h)
	defer server.Close()
	for _, plain := range []bool{false, true} {
		discoveryClient, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		discoveryClient.UseLegacyDiscovery = plain
		_, lists, err := discoveryClient.ServerGroupsAndResources()
		stale := clientdiscovery.IsGroupDiscoveryFailedError(err)
		if err != nil && !stale || stale == plain {
			t.Fatalf("plain %t: got error %v, want a stale group only in the aggregated form", plain, err)
		}
		found := map[string]bool{}
		for _, l := range lists {
			for _, r := range l.APIResources {
				found[l.GroupVersion+" "+r.Name] = true
			}
		}
		for _, want := range []string{"v1 pods", "v1 pods/eviction", "apps/v1 deployments/scale", "example.com/v1 widgets"} {
			if !found[want] {
				t.Errorf("plain %t: got resources %v, want %s among them", plain, found, want)
			}
		}
		if v, err := discoveryClient.ServerVersion(); err != nil || v.Minor != "33" {
			t.Errorf("got version %v, %v, want minor 33", v, err)
		}
	}
}

// TestDocumentsAreIndentedOnRequest checks that ?pretty=true indents a document, which otherwise
// is one line.
func TestDocumentsAreIndentedOnRequest(t *testing.T) {
	_, h := serve(t)
	if b := get(h, "/apis/policy?pretty=true").Body.String(); !strings.Contains(b, "\n  \"name\": \"policy\"") {
		t.Errorf("pretty=true: got document %s, want it indented", b)
	}
	if b := get(h, "/apis/policy").Body.String(); strings.Count(b, "\n") != 1 {
		t.Errorf("got document %s, want it on one line", b)
	}
}

// TestDocumentsAreReadableDuringReplace checks that documents can be read while groups are replaced.
func TestDocumentsAreReadableDuringReplace(t *testing.T) {
	documents, h := serve(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				if i == 0 && j%10 == 0 {
					documents.Replace(widgets())
				}
				if w := get(h, "/apis", "Accept", "application/json"+asV2); w.Code != http.StatusOK {
					t.Errorf("got status %d, want %v", w.Code, http.StatusOK)
				}
				if w := get(h, "/apis/apps/v1"); w.Code != http.StatusOK {
					t.Errorf("got status %d, want %v", w.Code, http.StatusOK)
				}
			}
		})
	}
	group.Wait()
}

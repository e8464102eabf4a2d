package aggregation_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/discovery"
)

const (
	aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	// spies is a document of all groups, in which the group version has other resources than in its
	// list.
	spies = `{"items":[{"metadata":{"name":"ext.test"},"versions":[{"version":"v1","resources":[{"resource":"spies"}]}]}]}`
)

// discovered returns the resource names of the only server, after "stale" if they are stale.
func (agg *fixture) discovered() string {
	all := agg.Versions()
	if len(all) != 1 {
		return ""
	}
	var names []string
	if all[0].Stale {
		names = append(names, "stale")
	}
	for i := range all[0].Resources {
		names = append(names, all[0].Resources[i].Name)
	}
	return strings.Join(names, " ")
}

// TestResourcesComeFromDocumentOrList checks that without an aggregated document, resources come
// from the list of the group version. A server whose document cannot be read, or that is
// unavailable, is stale.
func TestResourcesComeFromDocumentOrList(t *testing.T) { inBubble(t, sourceOfDiscovery) }

func sourceOfDiscovery(t *testing.T, n *network) {
	authority := newAuthority(t)
	const fromList = "things things/status"
	for _, test := range []struct {
		name, mediaType, encoding string
		code                      int
		body                      string
		want                      string
	}{
		{name: "the document", mediaType: aggregatedType, code: 200, body: spies, want: "spies"},
		{name: "500", mediaType: aggregatedType, code: 500, body: spies, want: fromList},
		{name: "503", mediaType: aggregatedType, code: 503, body: spies, want: "stale"},
		{name: "without the group version", mediaType: aggregatedType, code: 200, body: `{"items":[]}`, want: ""},
		{
			name: "stale in the document", mediaType: aggregatedType, code: 200,
			body: strings.Replace(spies, `"resources"`, `"freshness":"Stale","resources"`, 1), want: "spies",
		},
		{name: "another media type", mediaType: "application/json", code: 200, body: spies, want: fromList},
		{name: "valid start, then a wrong type", mediaType: aggregatedType, code: 200, body: strings.TrimSuffix(spies, "]}") + `,{"metadata":5}]}`, want: "stale"},
		{name: "longer than the limit", mediaType: aggregatedType, code: 200, body: spies + strings.Repeat(" ", 2<<20+1-len(spies)), want: "stale"},
		{name: "not modified without a previous response", mediaType: aggregatedType, code: 304, want: fromList},
		{name: "compressed", mediaType: aggregatedType, encoding: "gzip", code: 200, body: compressed(spies), want: "spies"},
		{name: "falsely marked as compressed", mediaType: aggregatedType, encoding: "gzip", code: 200, body: spies, want: "stale"},
	} {
		server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis" {
				serveResources(w, r)
				return
			}
			w.Header().Set("Content-Type", test.mediaType)
			if test.encoding != "" {
				w.Header().Set("Content-Encoding", test.encoding)
			}
			w.WriteHeader(test.code)
			_, _ = io.WriteString(w, test.body)
		})
		agg := n.start(t, nil)
		agg.register(server, authority.pem)
		agg.eventually("discovery is complete", func() bool { return len(server.requests("/openapi/v3")) > 0 })
		if got := agg.discovered(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
		if got := server.requests("/apis")[0].Header.Get("Accept"); !strings.HasPrefix(got, aggregatedType+",") {
			t.Errorf("got Accept %q, want %s first", got, aggregatedType)
		}
		agg.stop()
	}
}

// compressed returns a text compressed with gzip.
func compressed(text string) string {
	var out strings.Builder
	w := gzip.NewWriter(&out)
	_, _ = io.WriteString(w, text) // to memory
	_ = w.Close()
	return out.String()
}

// TestInvalidListsAreStale checks that without a valid list, a server is stale and has no
// resources.
func TestInvalidListsAreStale(t *testing.T) { inBubble(t, invalidListsAreStale) }

func invalidListsAreStale(t *testing.T, n *network) {
	authority := newAuthority(t)
	for name, serve := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, resourceList)
		},
		"valid start, then a wrong type": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.TrimSuffix(resourceList, "]}")+`,{"name":5}]}`)
		},
		"aborted response": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
	} {
		server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis/ext.test/v1" && r.Header.Get("Accept") == "application/json" { // checks, which have no Accept header, succeed
				serve(w, r)
				return
			}
			serveResources(w, r)
		})
		agg := n.start(t, nil)
		agg.register(server, authority.pem)
		agg.eventually("the server is requested", func() bool { return len(server.requests("/openapi/v3")) > 0 })
		if got := agg.discovered(); got != "stale" {
			t.Errorf("%s: got %q, want %q", name, got, "stale")
		}
		agg.stop()
	}
}

// TestDiscoveryUsesEntityTags checks that a document is kept while its entity tag is unchanged,
// and that a changed one replaces it.
func TestDiscoveryUsesEntityTags(t *testing.T) { inBubble(t, discoveryUsesEntityTags) }

func discoveryUsesEntityTags(t *testing.T, n *network) {
	authority := newAuthority(t)
	var now atomic.Int64
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		tag := fmt.Sprintf("%q", fmt.Sprint("tag", now.Load()))
		if path := r.URL.Path; path != "/apis" && path != "/openapi/v3" {
			serveResources(w, r)
			return
		}
		w.Header().Set("ETag", tag)
		switch {
		case r.Header.Get("If-None-Match") == tag:
			w.WriteHeader(http.StatusNotModified)
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", aggregatedType)
			_, _ = io.WriteString(w, strings.ReplaceAll(spies, "spies", fmt.Sprint("spies", now.Load())))
		default:
			fmt.Fprintf(w, `{"paths":{"apis/ext.test/v1":{"serverRelativeURL":"/x?hash=%d"}}}`, now.Load())
		}
	})
	times := newClock()
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	agg.register(server, authority.pem)
	// discoveredWithHash returns the discovered resources, and the hash of the v3 document if there
	// is one.
	discoveredWithHash := func() string {
		documents := agg.RemoteGroupVersions()
		if len(documents) != 1 {
			return agg.discovered()
		}
		return agg.discovered() + " " + documents[0].Hash
	}
	for n := range int64(2) {
		now.Store(n)
		want := fmt.Sprintf("spies%d %d", n, n)
		agg.eventually("discovery is complete", func() bool { agg.makeChecksDue(times); return discoveredWithHash() == want })
		requests := len(server.requests("/openapi/v3"))
		agg.eventually("the server is requested again", func() bool {
			if got := discoveredWithHash(); got != want {
				t.Errorf("unchanged entity tag: got resources and hash %q, want %q", got, want)
			}
			agg.makeChecksDue(times)
			return len(server.requests("/openapi/v3")) >= requests+3
		})
	}
}

// TestCoreGroupIsReadFromAPI checks that the resources of a server of the core group are read from
// /api instead of /apis.
func TestCoreGroupIsReadFromAPI(t *testing.T) { inBubble(t, coreGroupIsReadFromAPI) }

func coreGroupIsReadFromAPI(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api":
			w.Header().Set("Content-Type", aggregatedType)
			_, _ = io.WriteString(w, strings.NewReplacer(`"ext.test"`, `""`, `"v1"`, `"v2"`).Replace(spies))
		case "/api/v2":
			_, _ = io.WriteString(w, `{"resources":[{"name":"things"}]}`)
		default:
			http.NotFound(w, r)
		}
	})
	agg := n.start(t, nil)
	s := apiService(server.port, authority.pem)
	s.Name, s.Spec.Group, s.Spec.Version = "v2.", "", "v2"
	agg.board.put(s.Name, s)
	agg.eventually("discovery is complete", func() bool { return agg.discovered() == "spies" })
}

// aggregated is an aggregated document in which the group version has the resource things.
const aggregated = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
	{"metadata":{"name":"other.test"},"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"spies"}]}]},
	{"metadata":{"name":"ext.test"},"versions":[{"version":"v2"},{"version":"v1","freshness":"Current","resources":[
		{"resource":"things","responseKind":{"group":"","version":"","kind":"Thing"},"scope":"Namespaced","singularResource":"thing","verbs":["get"],"shortNames":["th"],
		 "subresources":[{"subresource":"status","responseKind":{"group":"","version":"","kind":"Thing"},"verbs":["get"],"acceptedTypes":[{"group":"","version":"","kind":"Accepted"}]}]}]}]}]}`

// TestDiscoveryFollowsChanges checks what discovery shows while a server first has only a list of
// resources, then an aggregated document, and at last fails.
func TestDiscoveryFollowsChanges(t *testing.T) { inBubble(t, discoveryFollowsChanges) }

func discoveryFollowsChanges(t *testing.T, n *network) {
	authority := newAuthority(t)
	agg := n.start(t, nil)
	if got := agg.Versions(); len(got) != 0 {
		t.Errorf("before any server: got versions %v, want none", got)
	}
	server := n.extend(t, authority.issueServing(), serveResources)
	agg.register(server, authority.pem)
	version := func() discovery.GroupVersion {
		if all := agg.Versions(); len(all) == 1 {
			return all[0]
		}
		return discovery.GroupVersion{}
	}
	agg.eventually("discovery is complete", func() bool { return len(version().Resources) > 0 })
	resource := metav1.APIResource{
		Name: "things", SingularName: "thing", Namespaced: true, Kind: "Thing", Verbs: []string{"get", "list"},
		ShortNames: []string{"th"}, Categories: []string{"all"},
	}
	sub := metav1.APIResource{Name: "things/status", Namespaced: true, Kind: "Thing", Verbs: []string{"get"}}
	want := discovery.GroupVersion{
		Group:           "ext.test",
		Version:         "v1",
		GroupPriority:   1000,
		VersionPriority: 15,
		Resources:       []metav1.APIResource{resource, sub},
	}
	if got := version(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}

	// The aggregated document is preferred and requested with its entity tag.
	server.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis" {
			serveResources(w, r)
			return
		}
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_, _ = io.WriteString(w, aggregated)
	})
	resource.Verbs, resource.Categories = []string{"get"}, nil
	want.Resources = []metav1.APIResource{resource, sub}
	want.Aggregated = []apidiscoveryv2.APIResourceDiscovery{{
		Resource:         "things",
		ResponseKind:     &metav1.GroupVersionKind{Kind: "Thing"},
		Scope:            "Namespaced",
		SingularResource: "thing",
		Verbs:            []string{"get"},
		ShortNames:       []string{"th"},
		Subresources: []apidiscoveryv2.APISubresourceDiscovery{{
			Subresource:   "status",
			ResponseKind:  &metav1.GroupVersionKind{Kind: "Thing"},
			Verbs:         []string{"get"},
			AcceptedTypes: []metav1.GroupVersionKind{{Kind: "Accepted"}},
		}},
	}}
	agg.CheckAll()
	agg.eventually("discovery has the new resources", func() bool { return reflect.DeepEqual(version(), want) })
	agg.CheckAll()
	agg.eventually("a request has an entity tag", func() bool {
		all := server.requests("/apis")
		return all[len(all)-1].Header.Get("If-None-Match") == `"1"`
	})

	// A server that fails is stale and has no resources.
	server.handle(http.NotFound)
	agg.CheckAll()
	want.Stale, want.Resources, want.Aggregated = true, nil, nil
	agg.eventually("the version is stale", func() bool { return reflect.DeepEqual(version(), want) })

	server.handle(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "nonsense") })
	agg.CheckAll()
	agg.eventually("the server is available", func() bool { return agg.condition(name) == passed })
	if got := version(); !got.Stale {
		t.Errorf("invalid document: got %v, want a stale version", got)
	}
}

// serveDiscovery responds to /apis with the aggregated document while ready is set and with 503
// before, and the path of the group version with the given code and no body.
func serveDiscovery(ready *atomic.Bool, code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis" && !ready.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", aggregatedType)
			_, _ = io.WriteString(w, spies)
		case r.URL.Path == "/apis/ext.test/v1":
			w.WriteHeader(code)
		default:
			http.NotFound(w, r)
		}
	}
}

// TestDiscoveryIsRetriedAfterAFailure checks that a server that is available, but fails to respond
// to /apis at first, becomes current as soon as it responds. No change of its APIService or service is
// needed for that.
func TestDiscoveryIsRetriedAfterAFailure(t *testing.T) { inBubble(t, discoveryIsRetriedAfterAFailure) }

func discoveryIsRetriedAfterAFailure(t *testing.T, n *network) {
	authority := newAuthority(t)
	var ready atomic.Bool
	server := n.extend(t, authority.issueServing(), serveDiscovery(&ready, http.StatusOK))
	agg := n.start(t, nil)
	agg.register(server, authority.pem)
	if got := agg.discovered(); got != "stale" {
		t.Errorf("before /apis responds: got %q, want %q", got, "stale")
	}
	ready.Store(true)
	agg.eventually("discovery has the resource spies", func() bool { return agg.discovered() == "spies" })
}

// TestDiscoveryDoesNotDependOnAvailability checks that the resources of a server that fails its
// availability check are read and current, also while its APIService changes.
func TestDiscoveryDoesNotDependOnAvailability(t *testing.T) {
	inBubble(t, discoveryDoesNotDependOnAvailability)
}

func discoveryDoesNotDependOnAvailability(t *testing.T, n *network) {
	authority := newAuthority(t)
	var ready atomic.Bool
	ready.Store(true)
	server := n.extend(
		t,
		authority.issueServing(),
		serveDiscovery(&ready, http.StatusInternalServerError),
	)
	agg := n.start(t, nil)
	agg.board.put(name, apiService(server.port, authority.pem))
	agg.eventually(
		"the server is unavailable",
		func() bool { return strings.HasPrefix(agg.condition(name), "False FailedDiscoveryCheck") },
	)
	agg.eventually("discovery has the resource spies", func() bool { return agg.discovered() == "spies" })
	s := apiService(server.port, authority.pem)
	s.Spec.VersionPriority++
	agg.board.put(name, s)
	agg.eventually(
		"the new priority is in discovery",
		func() bool { all := agg.Versions(); return len(all) == 1 && all[0].VersionPriority == 16 },
	)
	if got := agg.discovered(); got != "spies" {
		t.Errorf("after a change of the APIService: got %q, want %q", got, "spies")
	}
	if got := server.requests("/openapi/v3"); len(got) != 0 {
		t.Errorf("got %d OpenAPI requests to an unavailable server, want 0", len(got))
	}
}

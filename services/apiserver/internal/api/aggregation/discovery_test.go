package aggregation_test

import (
	"compress/gzip"
	"crypto/x509"
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
func (b *fixture) discovered() string {
	all := b.Versions()
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
	ca := newAuthority(t)
	const fromList = "things things/status"
	for _, c := range []struct {
		what, mediaType, encoding string
		code                      int
		body                      string
		want                      string
	}{
		{what: "the document", mediaType: aggregatedType, code: 200, body: spies, want: "spies"},
		{what: "an error", mediaType: aggregatedType, code: 500, body: spies, want: fromList},
		{what: "unavailable", mediaType: aggregatedType, code: 503, body: spies, want: "stale"},
		{what: "without the group version", mediaType: aggregatedType, code: 200, body: `{"items":[]}`, want: ""},
		{
			what: "stale in the document", mediaType: aggregatedType, code: 200,
			body: strings.Replace(spies, `"resources"`, `"freshness":"Stale","resources"`, 1), want: "spies",
		},
		{what: "another document", mediaType: "application/json", code: 200, body: spies, want: fromList},
		{what: "partly another", mediaType: aggregatedType, code: 200, body: strings.TrimSuffix(spies, "]}") + `,{"metadata":5}]}`, want: "stale"},
		{what: "too long", mediaType: aggregatedType, code: 200, body: spies + strings.Repeat(" ", 2<<20+1-len(spies)), want: "stale"},
		{what: "not modified without a previous response", mediaType: aggregatedType, code: 304, want: fromList},
		{what: "compressed", mediaType: aggregatedType, encoding: "gzip", code: 200, body: compressed(spies), want: "spies"},
		{what: "not compressed", mediaType: aggregatedType, encoding: "gzip", code: 200, body: spies, want: "stale"},
	} {
		e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis" {
				serveResources(w, r)
				return
			}
			w.Header().Set("Content-Type", c.mediaType)
			if c.encoding != "" {
				w.Header().Set("Content-Encoding", c.encoding)
			}
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		})
		b := n.start(t, nil)
		b.register(e, ca.pem)
		b.eventually("discovery is complete", func() bool { return len(e.requests("/openapi/v3")) > 0 })
		if got := b.discovered(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
		if got := e.requests("/apis")[0].Header.Get("Accept"); !strings.HasPrefix(got, aggregatedType+",") {
			t.Errorf("got Accept %q, want %s first", got, aggregatedType)
		}
		b.stop()
	}
}

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
	ca := newAuthority(t)
	for what, serve := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, resourceList)
		},
		"partly another": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.TrimSuffix(resourceList, "]}")+`,{"name":5}]}`)
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
	} {
		e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis/ext.test/v1" && r.Header.Get("Accept") == "application/json" { // a later checkAndReport sees all
				serve(w, r)
				return
			}
			serveResources(w, r)
		})
		b := n.start(t, nil)
		b.register(e, ca.pem)
		b.eventually("the server is requested", func() bool { return len(e.requests("/openapi/v3")) > 0 })
		if got := b.discovered(); got != "stale" {
			t.Errorf("%s: got %q, want %q", what, got, "stale")
		}
		b.stop()
	}
}

// TestDiscoveryUsesEntityTags checks that a document is kept while its entity tag is unchanged,
// and that a changed one replaces it.
func TestDiscoveryUsesEntityTags(t *testing.T) { inBubble(t, discoveryUsesEntityTags) }

func discoveryUsesEntityTags(t *testing.T, n *network) {
	ca := newAuthority(t)
	var now atomic.Int64
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
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
	b := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	b.register(e, ca.pem)
	// discoveredWithHash returns the discovered resources, and the hash of the document if there is one.
	discoveredWithHash := func() string {
		otherGroups := b.RemoteGroupVersions()
		if len(otherGroups) != 1 {
			return b.discovered()
		}
		return b.discovered() + " " + otherGroups[0].Hash
	}
	for n := range int64(2) {
		now.Store(n)
		want := fmt.Sprintf("spies%d %d", n, n)
		b.eventually("discovery is complete", func() bool { b.makeChecksDue(times); return discoveredWithHash() == want })
		requests := len(e.requests("/openapi/v3"))
		b.eventually("the server is requested again", func() bool {
			if got := discoveredWithHash(); got != want {
				t.Errorf("unchanged entity tag: got resources and hash %q, want %q", got, want)
			}
			b.makeChecksDue(times)
			return len(e.requests("/openapi/v3")) >= requests+3
		})
	}
}

// TestCoreGroup checks that the core group has paths of its own.
func TestCoreGroup(t *testing.T) { inBubble(t, coreGroup) }

func coreGroup(t *testing.T, n *network) {
	ca := newAuthority(t)
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
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
	b := n.start(t, nil)
	s := apiService(e.port, ca.pem)
	s.Name, s.Spec.Group, s.Spec.Version = "v2.", "", "v2"
	b.board.put(s.Name, s)
	b.eventually("discovery is complete", func() bool { return b.discovered() == "spies" })
}

const aggregated = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
	{"metadata":{"name":"other.test"},"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"spies"}]}]},
	{"metadata":{"name":"ext.test"},"versions":[{"version":"v2"},{"version":"v1","freshness":"Current","resources":[
		{"resource":"things","responseKind":{"group":"","version":"","kind":"Thing"},"scope":"Namespaced","singularResource":"thing","verbs":["get"],"shortNames":["th"],
		 "subresources":[{"subresource":"status","responseKind":{"group":"","version":"","kind":"Thing"},"verbs":["get"],"acceptedTypes":[{"group":"","version":"","kind":"Accepted"}]}]}]}]}]}`

func TestDiscoveryFollowsChanges(t *testing.T) { inBubble(t, discoveryFollowsChanges) }

func discoveryFollowsChanges(t *testing.T, n *network) {
	ca := newAuthority(t)
	b := n.start(t, nil)
	if got := b.Versions(); len(got) != 0 {
		t.Errorf("before any server: got versions %v, want none", got)
	}
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), serveResources)
	b.register(e, ca.pem)
	version := func() discovery.GroupVersion {
		if all := b.Versions(); len(all) == 1 {
			return all[0]
		}
		return discovery.GroupVersion{}
	}
	b.eventually("discovery is complete", func() bool { return len(version().Resources) > 0 })
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
	e.handle(func(w http.ResponseWriter, r *http.Request) {
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
	b.CheckAll()
	b.eventually("discovery has the new resources", func() bool { return reflect.DeepEqual(version(), want) })
	b.CheckAll()
	b.eventually("a request has an entity tag", func() bool {
		all := e.requests("/apis")
		return all[len(all)-1].Header.Get("If-None-Match") == `"1"`
	})

	// A server that fails is stale and has no resources.
	e.handle(http.NotFound)
	b.CheckAll()
	want.Stale, want.Resources, want.Aggregated = true, nil, nil
	b.eventually("the version is stale", func() bool { return reflect.DeepEqual(version(), want) })

	e.handle(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "nonsense") })
	b.CheckAll()
	b.eventually("the server is available", func() bool { return b.condition(name) == passed })
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
// to /apis at first, becomes current as soon as it answers, whatever else happens.
func TestDiscoveryIsRetriedAfterAFailure(t *testing.T) { inBubble(t, discoveryIsRetriedAfterAFailure) }

func discoveryIsRetriedAfterAFailure(t *testing.T, n *network) {
	ca := newAuthority(t)
	var ready atomic.Bool
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), serveDiscovery(&ready, http.StatusOK))
	b := n.start(t, nil)
	b.register(e, ca.pem)
	if got := b.discovered(); got != "stale" {
		t.Errorf("before /apis responses: got %q, want %q", got, "stale")
	}
	ready.Store(true)
	b.eventually("discovery has the resource spies", func() bool { return b.discovered() == "spies" })
}

// TestDiscoveryDoesNotDependOnAvailability checks that the resources of a server that fails its
// availability check are read and current, also while its APIService changes.
func TestDiscoveryDoesNotDependOnAvailability(t *testing.T) {
	inBubble(t, discoveryDoesNotDependOnAvailability)
}

func discoveryDoesNotDependOnAvailability(t *testing.T, n *network) {
	ca := newAuthority(t)
	var ready atomic.Bool
	ready.Store(true)
	e := n.extend(
		t,
		ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth),
		serveDiscovery(&ready, http.StatusInternalServerError),
	)
	b := n.start(t, nil)
	b.board.put(name, apiService(e.port, ca.pem))
	b.eventually(
		"the server is unavailable",
		func() bool { return strings.HasPrefix(b.condition(name), "False FailedDiscoveryCheck") },
	)
	b.eventually("discovery has the resource spies", func() bool { return b.discovered() == "spies" })
	s := apiService(e.port, ca.pem)
	s.Spec.VersionPriority++
	b.board.put(name, s)
	b.eventually(
		"the new priority is resourceList",
		func() bool { all := b.Versions(); return len(all) == 1 && all[0].VersionPriority == 16 },
	)
	if got := b.discovered(); got != "spies" {
		t.Errorf("after a change of the APIService: got %q, want %q", got, "spies")
	}
	if got := e.requests("/openapi/v3"); len(got) != 0 {
		t.Errorf("got %d OpenAPI requests to an unavailable server, want 0", len(got))
	}
}

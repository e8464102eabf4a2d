package aggregation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/aggregation"
)

// spec is the OpenAPI v2 document of the extension server.
const spec = `{"swagger":"2.0","info":{"title":"Ext","version":"v0"},"paths":{"/apis/ext.test/v1/things":{"get":{"operationId":"listThings","responses":{"200":{"description":"OK"}}}}}}`

// serveOpenAPI serves the resources of the group version and its OpenAPI documents.
func serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/openapi/v2":
		w.Header().Set("ETag", `"2"`)
		if r.Header.Get("If-None-Match") == `"2"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, spec)
	case "/openapi/v3":
		_, _ = io.WriteString(
			w,
			`{"paths":{"apis/ext.test/v1":{"serverRelativeURL":"https://evil.example/openapi/v3/apis/ext.test/v1?hash=HASH1"},"apis/apps/v1":{"serverRelativeURL":"/x?hash=1"}}}`,
		)
	case "/openapi/v3/apis/ext.test/v1":
		_, _ = io.WriteString(w, "of "+r.Header.Get("X-Remote-User"))
	default:
		serveResources(w, r)
	}
}

// TestOpenAPIFollowsTheServer checks the user of requests for OpenAPI documents, when they are
// requested again, and that other documents of the server replace them.
func TestOpenAPIFollowsTheServer(t *testing.T) { inBubble(t, openAPIFollowsTheServer) }

func openAPIFollowsTheServer(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), serveOpenAPI)
	var mutex sync.Mutex
	now := time.Now()
	later := func(d time.Duration) {
		mutex.Lock()
		defer mutex.Unlock()
		now = now.Add(d)
	}
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) {
		c.Now = func() time.Time {
			mutex.Lock()
			defer mutex.Unlock()
			now = now.Add(time.Millisecond)
			return now
		}
	})
	if len(agg.Swaggers(t.Context())) != 0 || len(agg.RemoteGroupVersions()) != 0 {
		t.Errorf("before any server was registered: got documents %v and %v, want none",
			agg.Swaggers(t.Context()), agg.RemoteGroupVersions())
	}
	agg.register(server, authority.pem)
	agg.eventually("the index is read", func() bool { return len(agg.RemoteGroupVersions()) == 1 })
	other := agg.RemoteGroupVersions()[0]
	if other.GroupVersion != gv || other.Hash != "HASH1" {
		t.Errorf("got document %+v, want that of %s with HASH1", other, gv)
	}
	if w := agg.send(eve, httptest.NewRequest("GET", "/openapi/v3/apis/ext.test/v1", nil)); w.Body.String() != "of eve" {
		t.Errorf("got status %d: %s, want the document of eve", w.Code, w.Body)
	}
	seen := server.requests("/openapi/v3")[0].Header
	if seen.Get("X-Remote-User") != "system:aggregator" || seen.Get("X-Remote-Group") != "" {
		t.Errorf("got request headers %v, want user system:aggregator", seen)
	}

	first := agg.Swaggers(t.Context())
	if len(first) != 1 || first[0].GroupVersion != gv || !json.Valid(first[0].Text) ||
		!strings.Contains(string(first[0].Text), "listThings") {
		t.Fatalf("got documents %+v, want that of %s with listThings", first, gv)
	}
	agg.Swaggers(t.Context())
	if n := len(server.requests("/openapi/v2")); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
	later(time.Minute)
	agg.eventually("a request has an entity tag", func() bool {
		agg.Swaggers(t.Context())
		all := server.requests("/openapi/v2")
		return all[len(all)-1].Header.Get("If-None-Match") == `"2"`
	})
	server.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			_, _ = io.WriteString(w, strings.ReplaceAll(spec, "listThings", "listOthers"))
			return
		}
		serveOpenAPI(w, r)
	})
	agg.eventually("the other document is served", func() bool {
		later(time.Minute)
		got := agg.Swaggers(t.Context())
		return len(got) == 1 && strings.Contains(string(got[0].Text), "listOthers") && got[0].Tag != first[0].Tag
	})
	server.handle(serveResources)
	agg.eventually("no document is served", func() bool {
		later(time.Minute)
		return len(agg.Swaggers(t.Context())) == 0 && len(agg.RemoteGroupVersions()) == 0
	})
}

// TestHangingOpenAPIDoesNotBlock checks that a server that does not respond to the request for its
// document does not delay the documents of other servers for long.
func TestHangingOpenAPIDoesNotBlock(t *testing.T) { inBubble(t, hangingOpenAPIDoesNotBlock) }

func hangingOpenAPIDoesNotBlock(t *testing.T, n *network) {
	authority := newAuthority(t)
	var requests atomic.Int32
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			requests.Add(1)
			<-r.Context().Done()
			return
		}
		serveResources(w, r)
	})
	agg := n.start(t, nil)
	agg.register(server, authority.pem)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got := agg.Swaggers(ctx); len(got) != 0 || ctx.Err() != nil {
		t.Errorf("got %v, %v, want no documents before the deadline", got, ctx.Err())
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
	agg.stop() // cancels the request
}

// TestInvalidIndexesAreIgnored checks that an index that is invalid or truncated names no document.
func TestInvalidIndexesAreIgnored(t *testing.T) { inBubble(t, invalidIndexesAreIgnored) }

func invalidIndexesAreIgnored(t *testing.T, n *network) {
	authority := newAuthority(t)
	const index = `{"paths":{"apis/ext.test/v1":{"serverRelativeURL":"/x?hash=1"}`
	for name, serve := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, index+"}}")
		},
		"valid start, then a wrong type": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, index+`,"other":5}}`) },
		"aborted response":               func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/openapi/v3" {
				serve(w, r)
				return
			}
			serveResources(w, r)
		})
		times := newClock()
		agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
		agg.register(server, authority.pem)
		agg.eventually(
			"the server is requested twice",
			func() bool { agg.makeChecksDue(times); return len(server.requests("/openapi/v3")) >= 2 },
		)
		if got := agg.RemoteGroupVersions(); len(got) != 0 {
			t.Errorf("%s: got documents %+v, want none", name, got)
		}
		agg.stop()
	}
}

// TestOpenAPIDocumentsAreOrderedByPriority checks that documents are ordered by priority. Servers
// that are unavailable, cannot be reached or have no document are left out.
func TestOpenAPIDocumentsAreOrderedByPriority(t *testing.T) {
	inBubble(t, openAPIDocumentsAreOrderedByPriority)
}

func openAPIDocumentsAreOrderedByPriority(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		version := strings.TrimPrefix(r.URL.Path, "/apis/ext.test/")
		switch {
		case r.URL.Path == "/openapi/v2":
			_, _ = io.WriteString(w, spec)
		case r.URL.Path == "/openapi/v3":
			_, _ = io.WriteString(
				w,
				`{"paths":{"apis/ext.test/v1":{},"apis/ext.test/v2":{},"apis/ext.test/v3":{},"apis/ext.test/v4":{},"apis/ext.test/v5":{},"apis/ext.test/v6":{}}}`,
			)
		case version != r.URL.Path && version != "v6":
			_, _ = io.WriteString(w, "{}")
		default:
			http.NotFound(w, r)
		}
	})
	agg := n.start(t, nil)
	v2Documents := func() string {
		var out []string
		for _, s := range agg.Swaggers(t.Context()) {
			out = append(out, s.GroupVersion.Version)
		}
		return strings.Join(out, " ")
	}
	v3Documents := func() string {
		var out []string
		for _, o := range agg.RemoteGroupVersions() {
			out = append(out, o.GroupVersion.Version)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	for i, priority := range []int32{100, 300, 200, 300, 400, 500} { // of v1 to v6
		s := apiService(server.port, authority.pem)
		s.Spec.Version, s.Spec.GroupPriorityMinimum = fmt.Sprint("v", i+1), priority
		s.Name = s.Spec.Version + ".ext.test"
		if s.Spec.Version == "v3" { // requests cannot be proxied with an invalid CA bundle
			s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = []byte("nonsense"), true
		}
		agg.board.put(s.Name, s)
	}
	agg.eventually("the indexes are read", func() bool { return v3Documents() == "v1 v2 v3 v4 v5" })
	agg.eventually("the server is unavailable", func() bool { return strings.HasPrefix(agg.condition("v6.ext.test"), "False ") })
	if got := v2Documents(); got != "v5 v2 v4 v1" {
		t.Errorf("got documents of %q, want v5 v2 v4 v1", got)
	}
	agg.mu.Lock()
	agg.local[schema.GroupVersion{Group: gv.Group, Version: "v5"}] = true
	agg.mu.Unlock()
	if v2, v3 := v2Documents(), v3Documents(); v2 != "v2 v4 v1" || v3 != "v1 v2 v3 v4" {
		t.Errorf("without the local group version: got %q, %q, want %q, %q", v2, v3, "v2 v4 v1", "v1 v2 v3 v4")
	}
}

// TestMissingOpenAPIIsRequestedSoonerThanKnown checks that a missing document is requested again
// soon, an existing one later. A known document is kept when the server fails, and is returned
// without waiting for the server.
func TestMissingOpenAPIIsRequestedSoonerThanKnown(t *testing.T) {
	inBubble(t, missingOpenAPIIsRequestedSoonerThanKnown)
}

func missingOpenAPIIsRequestedSoonerThanKnown(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), serveResources)
	times := newClock()
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	agg.register(server, authority.pem)
	requests := func() int { return len(server.requests("/openapi/v2")) }
	for _, c := range []struct {
		after time.Duration
		want  int
	}{
		{after: 0, want: 1},
		{after: 9 * time.Second, want: 1},
		{after: time.Second, want: 2},
	} {
		times.advance(c.after)
		if got := agg.Swaggers(t.Context()); len(got) != 0 || requests() != c.want {
			t.Errorf("after %v: got %d documents after %d requests, want %d requests", c.after, len(got), requests(), c.want)
		}
	}
	server.handle(serveOpenAPI)
	times.advance(10 * time.Second)
	requireOneDocument := func() {
		t.Helper()
		if got := agg.Swaggers(t.Context()); len(got) != 1 {
			t.Fatalf("got %d documents, want 1", len(got))
		}
	}
	requireOneDocument()
	requireOneDocument()
	if requests() != 3 {
		t.Errorf("got %d requests, want 3", requests())
	}
	server.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		serveResources(w, r)
	})
	agg.eventually("the server is requested twice", func() bool { times.advance(time.Minute); requireOneDocument(); return requests() >= 5 })

	// While the server does not respond, the known document is returned, and there is one request.
	respond := make(chan bool)
	var waiting, maxWaiting atomic.Int32
	server.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			if n := waiting.Add(1); n > maxWaiting.Load() {
				maxWaiting.Store(n)
			}
			<-respond
			waiting.Add(-1)
		}
		serveOpenAPI(w, r)
	})
	agg.eventually("the server is requested", func() bool { times.advance(time.Minute); requireOneDocument(); return waiting.Load() > 0 })
	before, start := requests(), time.Now()
	for range 2 {
		times.advance(time.Minute)
		requireOneDocument()
	}
	if took := time.Since(start); took > 2*time.Second { // waiting for the server takes 3 s each time
		t.Errorf("known document: got it after %v, want it without waiting", took)
	}
	close(respond)
	agg.eventually(
		"the server is requested once more",
		func() bool { times.advance(time.Minute); requireOneDocument(); return requests() > before },
	)
	if n := maxWaiting.Load(); n != 1 {
		t.Errorf("got %d concurrent requests, want 1", n)
	}
}

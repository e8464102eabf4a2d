package aggregation_test

import (
	"context"
	"crypto/x509"
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

const spec = `{"swagger":"2.0","info":{"title":"Ext","version":"v0"},"paths":{"/apis/ext.test/v1/things":{"get":{"operationId":"listThings","responses":{"200":{"description":"OK"}}}}}}`

// described also serves OpenAPI documents.
func described(w http.ResponseWriter, r *http.Request) {
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

func TestOpenAPIOfServers(t *testing.T) { inBubble(t, openAPIOfServers) }

func openAPIOfServers(t *testing.T, n *network) {
	ca := newAuthority(t)
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), described)
	var mu sync.Mutex
	now := time.Now()
	later := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	b := n.start(t, func(_ *fixture, c *aggregation.Config) {
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(time.Millisecond)
			return now
		}
	})
	if len(b.Swaggers(t.Context())) != 0 || len(b.RemoteGroupVersions()) != 0 {
		t.Error("got documents before any server was registered")
	}
	b.register(e, ca.pem)
	b.eventually("the index is read", func() bool { return len(b.RemoteGroupVersions()) == 1 })
	other := b.RemoteGroupVersions()[0]
	if other.GroupVersion != gv || other.Hash != "HASH1" {
		t.Errorf("got document %+v, want that of %s with HASH1", other, gv)
	}
	if w := b.send(eve, httptest.NewRequest("GET", "/openapi/v3/apis/ext.test/v1", nil)); w.Body.String() != "of eve" {
		t.Errorf("got status %d: %s, want the document of eve", w.Code, w.Body)
	}
	seen := e.requests("/openapi/v3")[0].Header
	if seen.Get("X-Remote-User") != "system:aggregator" || seen.Get("X-Remote-Group") != "" {
		t.Errorf("got request headers %v, want user system:aggregator", seen)
	}

	first := b.Swaggers(t.Context())
	if len(first) != 1 || first[0].GroupVersion != gv || !json.Valid(first[0].Text) ||
		!strings.Contains(string(first[0].Text), "listThings") {
		t.Fatalf("got documents %+v, want that of %s with listThings", first, gv)
	}
	b.Swaggers(t.Context())
	if n := len(e.requests("/openapi/v2")); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
	later(time.Minute)
	b.eventually("a request has an entity tag", func() bool {
		b.Swaggers(t.Context())
		all := e.requests("/openapi/v2")
		return all[len(all)-1].Header.Get("If-None-Match") == `"2"`
	})
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			_, _ = io.WriteString(w, strings.ReplaceAll(spec, "listThings", "listOthers"))
			return
		}
		described(w, r)
	})
	b.eventually("the other document is served", func() bool {
		later(time.Minute)
		got := b.Swaggers(t.Context())
		return len(got) == 1 && strings.Contains(string(got[0].Text), "listOthers") && got[0].Tag != first[0].Tag
	})
	e.handle(serveResources)
	b.eventually("no document is served", func() bool {
		later(time.Minute)
		return len(b.Swaggers(t.Context())) == 0 && len(b.RemoteGroupVersions()) == 0
	})
}

// TestHangingOpenAPIDoesNotBlock checks that a server that does not respond to the request for its
// document does not delay the documents of other servers for long.
func TestHangingOpenAPIDoesNotBlock(t *testing.T) { inBubble(t, hangingOpenAPIDoesNotBlock) }

func hangingOpenAPIDoesNotBlock(t *testing.T, n *network) {
	ca := newAuthority(t)
	var requests atomic.Int32
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			requests.Add(1)
			<-r.Context().Done()
			return
		}
		serveResources(w, r)
	})
	b := n.start(t, nil)
	b.register(e, ca.pem)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got := b.Swaggers(ctx); len(got) != 0 || ctx.Err() != nil {
		t.Errorf("got %v, %v, want no documents before the deadline", got, ctx.Err())
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
	b.stop() // cancels the request
}

// TestInvalidIndexesAreIgnored checks that an index that is invalid or truncated names no document.
func TestInvalidIndexesAreIgnored(t *testing.T) { inBubble(t, invalidIndexesAreIgnored) }

func invalidIndexesAreIgnored(t *testing.T, n *network) {
	ca := newAuthority(t)
	const index = `{"paths":{"apis/ext.test/v1":{"serverRelativeURL":"/x?hash=1"}`
	for what, serve := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, index+"}}")
		},
		"partly another": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, index+`,"other":5}}`) },
		"cut":            func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/openapi/v3" {
				serve(w, r)
				return
			}
			serveResources(w, r)
		})
		times := newClock()
		b := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
		b.register(e, ca.pem)
		b.eventually(
			"the server is requested twice",
			func() bool { b.makeChecksDue(times); return len(e.requests("/openapi/v3")) >= 2 },
		)
		if got := b.RemoteGroupVersions(); len(got) != 0 {
			t.Errorf("%s: got documents %+v, want none", what, got)
		}
		b.stop()
	}
}

// TestOpenAPIOfSeveralServers checks that documents are ordered by priority. Servers that are
// unavailable, cannot be reached or have no document are left out.
func TestOpenAPIOfSeveralServers(t *testing.T) { inBubble(t, openAPIOfSeveralServers) }

func openAPIOfSeveralServers(t *testing.T, n *network) {
	ca := newAuthority(t)
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
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
	b := n.start(t, nil)
	swaggers := func() string {
		var out []string
		for _, s := range b.Swaggers(t.Context()) {
			out = append(out, s.GroupVersion.Version)
		}
		return strings.Join(out, " ")
	}
	otherGroups := func() string {
		var out []string
		for _, o := range b.RemoteGroupVersions() {
			out = append(out, o.GroupVersion.Version)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	for i, priority := range []int32{100, 300, 200, 300, 400, 500} {
		s := apiService(e.port, ca.pem)
		s.Spec.Version, s.Spec.GroupPriorityMinimum = fmt.Sprint("v", i+1), priority
		s.Name = s.Spec.Version + ".ext.test"
		if i == 2 { // cannot be reached
			s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = []byte("nonsense"), true
		}
		b.board.put(s.Name, s)
	}
	b.eventually("the indexes are read", func() bool { return otherGroups() == "v1 v2 v3 v4 v5" })
	b.eventually("the server is unavailable", func() bool { return strings.HasPrefix(b.condition("v6.ext.test"), "False ") })
	if got := swaggers(); got != "v5 v2 v4 v1" {
		t.Errorf("got documents of %q, want v5 v2 v4 v1", got)
	}
	b.mu.Lock()
	b.local[schema.GroupVersion{Group: gv.Group, Version: "v5"}] = true
	b.mu.Unlock()
	if v2, v3 := swaggers(), otherGroups(); v2 != "v2 v4 v1" || v3 != "v1 v2 v3 v4" {
		t.Errorf("without the local group version: got %q, %q, want %q, %q", v2, v3, "v2 v4 v1", "v1 v2 v3 v4")
	}
}

// TestOpenAPIIsRefreshed checks that a missing document is requested again soon, an existing one
// later. A known document is kept when the server fails, and is returned without waiting for the
// server.
func TestOpenAPIIsRefreshed(t *testing.T) { inBubble(t, openAPIIsRefreshed) }

func openAPIIsRefreshed(t *testing.T, n *network) {
	ca := newAuthority(t)
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), serveResources)
	times := newClock()
	b := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	b.register(e, ca.pem)
	requests := func() int { return len(e.requests("/openapi/v2")) }
	for _, c := range []struct {
		after time.Duration
		want  int
	}{
		{after: 0, want: 1},
		{after: 9 * time.Second, want: 1},
		{after: time.Second, want: 2},
	} {
		times.advance(c.after)
		if got := b.Swaggers(t.Context()); len(got) != 0 || requests() != c.want {
			t.Errorf("after %v: got %d documents after %d requests, want %d requests", c.after, len(got), requests(), c.want)
		}
	}
	e.handle(described)
	times.advance(10 * time.Second)
	documents := func() {
		t.Helper()
		if got := b.Swaggers(t.Context()); len(got) != 1 {
			t.Fatalf("got %d documents, want 1", len(got))
		}
	}
	documents()
	documents()
	if requests() != 3 {
		t.Errorf("got %d requests, want 3", requests())
	}
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		serveResources(w, r)
	})
	b.eventually("the server is requested twice", func() bool { times.advance(time.Minute); documents(); return requests() >= 5 })

	goOn := make(chan bool)
	var waiting, most atomic.Int32
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			if n := waiting.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-goOn
			waiting.Add(-1)
		}
		described(w, r)
	})
	b.eventually("the server is requested", func() bool { times.advance(time.Minute); documents(); return waiting.Load() > 0 })
	before, start := requests(), time.Now()
	for range 2 {
		times.advance(time.Minute)
		documents()
	}
	if took := time.Since(start); took > 2*time.Second { // waiting for the server takes 3 s each time
		t.Errorf("known document: got it after %v, want it without waiting", took)
	}
	close(goOn)
	b.eventually(
		"the server is requested once more",
		func() bool { times.advance(time.Minute); documents(); return requests() > before },
	)
	if n := most.Load(); n != 1 {
		t.Errorf("got %d concurrent requests, want 1", n)
	}
}

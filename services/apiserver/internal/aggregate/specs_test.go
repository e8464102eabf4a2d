package aggregate_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/aggregate"
)

const spec = `{"swagger":"2.0","info":{"title":"Ext","version":"v0"},"paths":{"/apis/ext.test/v1/things":{"get":{"operationId":"listThings","responses":{"200":{"description":"OK"}}}}}}`

// described serves documents of OpenAPI too.
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
		_, _ = io.WriteString(w, `{"paths":{"apis/ext.test/v1":{"serverRelativeURL":"https://evil.example/openapi/v3/apis/ext.test/v1?hash=HASH1"},"apis/apps/v1":{"serverRelativeURL":"/x?hash=1"}}}`)
	case "/openapi/v3/apis/ext.test/v1":
		_, _ = io.WriteString(w, "of "+r.Header.Get("X-Remote-User"))
	default:
		plain(w, r)
	}
}

func TestDocumentsOfServers(t *testing.T) {
	ca := newAuthority(t)
	e := extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), described)
	var mu sync.Mutex
	now := time.Now()
	later := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	b := start(t, func(_ *bench, c *aggregate.Config) {
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(time.Millisecond)
			return now
		}
	})
	if len(b.Swaggers(t.Context())) != 0 || len(b.Others()) != 0 {
		t.Error("documents of nobody")
	}
	b.register(e, ca.pem)
	b.eventually("an index", func() bool { return len(b.Others()) == 1 })
	other := b.Others()[0]
	if other.GroupVersion != gv || other.Hash != "HASH1" {
		t.Errorf("%+v", other)
	}
	if w := b.ask(eve, httptest.NewRequest("GET", "/openapi/v3/apis/ext.test/v1", nil)); w.Body.String() != "of eve" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if seen := e.asked("/openapi/v3")[0].Header; seen.Get("X-Remote-User") != "system:aggregator" || seen.Get("X-Remote-Group") != "" {
		t.Errorf("asked as %v", seen)
	}

	first := b.Swaggers(t.Context())
	if len(first) != 1 || first[0].GroupVersion != gv || !json.Valid(first[0].Text) || !strings.Contains(string(first[0].Text), "listThings") {
		t.Fatalf("%+v", first)
	}
	b.Swaggers(t.Context())
	if n := len(e.asked("/openapi/v2")); n != 1 {
		t.Errorf("asked %d times", n)
	}
	later(time.Minute)
	b.eventually("asked whether it is another", func() bool {
		b.Swaggers(t.Context())
		all := e.asked("/openapi/v2")
		return all[len(all)-1].Header.Get("If-None-Match") == `"2"`
	})
	e.does(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			_, _ = io.WriteString(w, strings.ReplaceAll(spec, "listThings", "listOthers"))
			return
		}
		described(w, r)
	})
	b.eventually("another document", func() bool {
		later(time.Minute)
		got := b.Swaggers(t.Context())
		return len(got) == 1 && strings.Contains(string(got[0].Text), "listOthers") && got[0].Tag != first[0].Tag
	})
	e.does(plain)
	b.eventually("no document", func() bool { later(time.Minute); return len(b.Swaggers(t.Context())) == 0 && len(b.Others()) == 0 })
}

// TestNobodyWaitsForDocuments: one server that leaves them unanswered keeps nobody from
// those of others for long.
func TestNobodyWaitsForDocuments(t *testing.T) {
	ca := newAuthority(t)
	var asked atomic.Int32
	e := extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			asked.Add(1)
			<-r.Context().Done()
			return
		}
		plain(w, r)
	})
	b := start(t, nil)
	b.register(e, ca.pem)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got := b.Swaggers(ctx); len(got) != 0 || ctx.Err() != nil {
		t.Errorf("%v, %v", got, ctx.Err())
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	b.stop() // ends the question
}

package request_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/request"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/healthz", "get -"},
		{"POST", "/", "post -"},
		{"GET", "/api", "get -"},
		{"GET", "/api/v1", "get -"},
		{"GET", "/apis/apps/v1", "get -"},
		{"GET", "/api/v1/pods", "list /v1 pods"},
		{"GET", "/api/v1/namespaces", "list /v1 namespaces"},
		{"GET", "/api/v1/namespaces/a", "get /v1 a namespaces/a"},
		{"PUT", "/api/v1/namespaces/a/finalize", "update /v1 a namespaces/a/finalize"},
		{"PATCH", "/api/v1/namespaces/a/status", "patch /v1 a namespaces/a/status"},
		{"GET", "/api/v1/namespaces/a/pods", "list /v1 a pods"},
		{"GET", "/api/v1/namespaces/a/pods?watch=1", "watch /v1 a pods"},
		{"GET", "/api/v1/namespaces/a/pods?watch=0", "list /v1 a pods"},
		{"GET", "/api/v1/namespaces/a/pods?watch=false", "list /v1 a pods"},
		{"GET", "/api/v1/namespaces/a/pods?watch", "watch /v1 a pods"},
		{"GET", "/api/v1/namespaces/a/pods/p?watch=true", "watch /v1 a pods/p"},
		{"GET", "/api/v1/watch/namespaces/a/pods/p", "watch /v1 a pods/p"},
		{"GET", "/api/v1/namespaces/a/pods/p/log", "get /v1 a pods/p/log"},
		{"GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", "list /v1 a pods/p"},
		{"GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name!%3Dp", "list /v1 a pods"},
		{"DELETE", "/api/v1/namespaces/a/pods", "deletecollection /v1 a pods"},
		{"DELETE", "/apis/apps/v1/namespaces/a/deployments/d", "delete apps/v1 a deployments/d"},
		{"POST", "/apis/apps/v1/namespaces/a/deployments", "create apps/v1 a deployments"},
		{"HEAD", "/api/v1/nodes/n", "get /v1 nodes/n"},
		{"OPTIONS", "/api/v1/nodes", " /v1 nodes"},
	} {
		i := request.Parse(httptest.NewRequest(c.method, c.path, nil))
		got := i.Verb + " -"
		if i.IsResource {
			what := i.Resource
			for _, p := range []string{i.Name, i.Subresource} {
				if p != "" {
					what += "/" + p
				}
			}
			got = strings.Join([]string{i.Verb, i.Group + "/" + i.Version, i.Namespace, what}, " ")
			got = strings.ReplaceAll(got, "  ", " ")
		}
		if got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("/api/v1/namespaces/a/pods/p/log", "watch=1&fieldSelector=metadata.name%3Dp")
	f.Add("//apis///", "")
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path, r.URL.RawQuery = path, query
		i := request.Parse(r)
		if i.IsResource && len(i.Parts) == 0 {
			t.Errorf("%q: a resource without a name", path)
		}
	})
}

func TestWarningsAreToldOnceAndBounded(t *testing.T) {
	ctx, w := request.WithWarnings(context.Background())
	for range 3 {
		request.Warn(ctx, `say "hi"`+"\r\nX: y")
	}
	if got := w.Headers(); len(got) != 1 || got[0] != `299 - "say \"hi\"  X: y"` {
		t.Errorf("headers are %q", got)
	}
	for i := range 100 {
		request.Warn(ctx, strings.Repeat("x", 100)+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	total := 0
	for _, h := range w.Headers() {
		total += len(h)
	}
	if total > 8<<10 {
		t.Errorf("%d bytes of warnings", total)
	}
	request.Warn(context.Background(), "nobody collects this")
}

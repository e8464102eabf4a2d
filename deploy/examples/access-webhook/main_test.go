package main

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHandler(t *testing.T) {
	server := httptest.NewTLSServer(handler(&rules{Users: map[string][]string{"ada": {"*"}}, Groups: map[string][]string{"dev": {"get", "list"}}}))
	defer server.Close()
	review := func(version, spec string) string {
		return `{"apiVersion":"authorization.k8s.io/` + version + `","kind":"SubjectAccessReview","spec":{` + spec + `}}`
	}
	const get, remove = `"resourceAttributes":{"verb":"get","resource":"pods"}`, `"resourceAttributes":{"verb":"delete","resource":"pods"}`
	const path = `"nonResourceAttributes":{"verb":"get","path":"/x"}`
	for _, c := range []struct {
		name, body string
		code       int
		want       string
	}{
		{"a user", review("v1", `"user":"ada",`+remove), 200, `"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{},"status":{"allowed":true,"reason":"allowed by a rule"}`},
		{"a group", review("v1", `"user":"bob","groups":["dev"],`+get), 200, `{"allowed":true,"reason":"allowed by a rule"}`},
		{"a group in v1beta1", review("v1beta1", `"group":["dev"],`+path), 200, `"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":{},"status":{"allowed":true`},
		{"another verb", review("v1", `"groups":["dev"],`+remove), 200, `{"allowed":false,"reason":"no rule allows it"}`},
		{"another user", review("v1", `"user":"dev","groups":["ada"],`+get), 200, `{"allowed":false`},
		{"no attributes", review("v1", `"user":"ada"`), 200, `{"allowed":false`},
		{"another kind", `{"apiVersion":"v1","kind":"Pod"}`, 400, "not a SubjectAccessReview"},
		{"invalid JSON", `{`, 400, "not a SubjectAccessReview"},
		{"body too large", `{"spec":"` + strings.Repeat("a", 2*maxBody), 400, "not a SubjectAccessReview"},
	} {
		resp, err := server.Client().Post(server.URL, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.code || !strings.Contains(string(body), c.want) {
			t.Errorf("%s: got %d %s, %v", c.name, resp.StatusCode, body, err)
		}
	}
}

package main

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAccessReviewResponses checks the responses to access reviews.
func TestAccessReviewResponses(t *testing.T) {
	server := httptest.NewTLSServer(newHandler(&rules{
		Users:  map[string][]string{"ada": {"*"}},
		Groups: map[string][]string{"dev": {"get", "list"}},
	}))
	defer server.Close()
	review := func(version, spec string) string {
		return `{"apiVersion":"authorization.k8s.io/` + version + `","kind":"SubjectAccessReview","spec":{` + spec + `}}`
	}
	const get, remove = `"resourceAttributes":{"verb":"get","resource":"pods"}`, `"resourceAttributes":{"verb":"delete","resource":"pods"}`
	const path = `"nonResourceAttributes":{"verb":"get","path":"/x"}`
	for _, test := range []struct {
		name, body string
		code       int
		want       string
	}{
		{
			name: "a user",
			body: review("v1", `"user":"ada",`+remove),
			code: 200,
			want: `"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{},"status":{"allowed":true,"reason":"allowed by a rule"}`,
		},
		{
			name: "a group",
			body: review("v1", `"user":"bob","groups":["dev"],`+get),
			code: 200,
			want: `{"allowed":true,"reason":"allowed by a rule"}`,
		},
		{
			name: "a group in v1beta1",
			body: review("v1beta1", `"group":["dev"],`+path),
			code: 200,
			want: `"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":{},"status":{"allowed":true`,
		},
		{
			name: "another verb",
			body: review("v1", `"groups":["dev"],`+remove),
			code: 200,
			want: `{"allowed":false,"reason":"no rule allows it"}`,
		},
		{name: "another user", body: review("v1", `"user":"dev","groups":["ada"],`+get), code: 200, want: `{"allowed":false`},
		{name: "no attributes", body: review("v1", `"user":"ada"`), code: 200, want: `{"allowed":false`},
		{name: "another kind", body: `{"apiVersion":"v1","kind":"Pod"}`, code: 400, want: "not a SubjectAccessReview"},
		{name: "invalid JSON", body: `{`, code: 400, want: "not a SubjectAccessReview"},
		{
			name: "body too large",
			body: `{"spec":"` + strings.Repeat("a", 2*maxBody),
			code: 400,
			want: "not a SubjectAccessReview",
		},
	} {
		resp, err := server.Client().Post(server.URL, "application/json", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != test.code || !strings.Contains(string(body), test.want) {
			t.Errorf("%s: got %d %s, %v, want status %d and a body that contains %q", test.name, resp.StatusCode, body,
				err, test.code, test.want)
		}
	}
}

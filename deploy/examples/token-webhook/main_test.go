package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTokenReviewResponses checks the responses to token reviews.
func TestTokenReviewResponses(t *testing.T) {
	digest := sha256.Sum256([]byte("secret"))
	server := httptest.NewTLSServer(newHandler(map[string]user{
		hex.EncodeToString(digest[:]): {Username: "ada", UID: "7", Groups: []string{"dev"}},
	}))
	defer server.Close()
	const good = `"status":{"authenticated":true,"user":{"username":"ada","uid":"7","groups":["dev"]}}}`
	tests := []struct {
		name, body string
		code       int
		want       string
	}{
		{name: "v1", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"secret"}}`, code: 200,
			want: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{},` + good},
		{
			name: "v1beta1",
			body: `{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","spec":{"token":"secret"}}`,
			code: 200,
			want: `{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","spec":{},` + good,
		},
		{
			name: "wrong",
			body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"Secret"}}`,
			code: 200,
			want: `"status":{"authenticated":false}`,
		},
		{
			name: "digest",
			body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"` +
				hex.EncodeToString(digest[:]) + `"}}`,
			code: 200,
			want: `"authenticated":false`,
		},
		{
			name: "none",
			body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview"}`,
			code: 200,
			want: `"authenticated":false`,
		},
		{name: "other kind", body: `{"apiVersion":"v1","kind":"Pod"}`, code: 400, want: "not a TokenReview"},
		{name: "invalid JSON", body: `{`, code: 400, want: "not a TokenReview"},
		{name: "body too large", body: `{"spec":"` + strings.Repeat("a", 2*maxBody), code: 400, want: "not a TokenReview"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := server.Client().Post(server.URL, "application/json", strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.code || !strings.Contains(string(body), tt.want) {
				t.Errorf("got %d %s, want status %d and a body that contains %q", resp.StatusCode, body, tt.code, tt.want)
			}
			if resp.StatusCode == http.StatusOK && strings.Contains(string(body), "secret") {
				t.Errorf("got a response with the token: %s, want none", body)
			}
		})
	}
}

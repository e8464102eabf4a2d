package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/endpoints"
	"binnacle/services/apiserver/internal/registry/builtin"
	"binnacle/services/apiserver/internal/represent"
	"binnacle/services/apiserver/internal/server"
)

// versioned serves the version, and nothing else.
type versioned struct{ server.Documents }

func (versioned) ServeVersion(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func TestVersionIsReadOnly(t *testing.T) {
	catalog, err := builtin.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	m := &server.Mux{Discovery: versioned{}, API: endpoints.New(endpoints.Config{Answers: represent.Answers{Responder: represent.Responder{Codec: c}}})}
	for _, test := range []struct {
		method, path string
		code         int
		reason       string
	}{
		{"GET", "/version", 200, ""},
		{"GET", "/version/", 200, ""},
		{"POST", "/version", 405, "MethodNotAllowed"},
		{"HEAD", "/version", 405, ""},
		{"GET", "/version/x", 404, "NotFound"},
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.reason) {
			t.Errorf("%s %s: %d %s, want %d %s", test.method, test.path, w.Code, w.Body, test.code, test.reason)
		}
	}
}

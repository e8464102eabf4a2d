package server_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/server"
)

// versionDocuments serves only the version.
type versionDocuments struct{ server.Documents }

func (versionDocuments) ServeVersion(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
}

// newErrorAPI returns an API handler that can only write errors.
func newErrorAPI(t *testing.T) *handlers.API {
	t.Helper()
	catalog, err := builtin.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return handlers.New(handlers.Config{Writers: responsewriters.Writers{Responder: responsewriters.Responder{Codec: c}}})
}

func TestVersionIsReadOnly(t *testing.T) {
	m := &server.Mux{Discovery: versionDocuments{}, API: newErrorAPI(t)}
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

// A path that is not clean serves no file.
func TestLogsRequireCleanPath(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"others": "secret", "mine/own": "mine", "mine/..own": "dots"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &server.Mux{API: newErrorAPI(t), LogFiles: dir}
	for _, test := range []struct {
		method, path string
		code         int
		text         string
	}{
		{"GET", "/logs/mine/own", 200, "mine"},
		{"GET", "/logs/mine/..own", 200, "dots"},
		{"GET", "/logs/others", 200, "secret"},
		{"GET", "/logs/mine/../others", 400, "invalid URL path"},
		{"GET", "/logs/mine/%2e%2e/others", 400, "invalid URL path"},
		{"GET", "/logs/mine/..%2Fothers", 400, "invalid URL path"},
		{"GET", "/logs/mine/x%5C..%5C..%5Cothers", 404, ""},
		{"GET", "/logs//others", 400, "invalid URL path"},
		{"GET", "/logs/./others", 400, "invalid URL path"},
		{"GET", "/logs/mine/", 200, "..own"},
		{"GET", "/logs/..", 400, "invalid URL path"},
		{"POST", "/logs/mine/own", 405, "MethodNotAllowed"},
		{"HEAD", "/logs/mine/own", 405, ""},
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.text) {
			t.Errorf("%s %s: %d %s, want %d %s", test.method, test.path, w.Code, w.Body, test.code, test.text)
		}
	}
}

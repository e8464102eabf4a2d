package routing_test

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
	"binnacle/services/apiserver/internal/server/routing"
)

// versionDocuments serves only the version.
type versionDocuments struct{ routing.Documents }

func (versionDocuments) ServeVersion(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
}

// newErrorAPI returns an API that can only write errors.
func newErrorAPI(t *testing.T) *handlers.API {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return handlers.New(handlers.Config{Responses: responsewriters.Responses{Responder: responsewriters.Responder{Codec: apiCodec}}})
}

// TestVersionIsReadOnly checks that /version supports only GET, with errors as Statuses.
func TestVersionIsReadOnly(t *testing.T) {
	mux := &routing.Mux{Discovery: versionDocuments{}, API: newErrorAPI(t)}
	for _, test := range []struct {
		method, path string
		code         int
		reason       string
	}{
		{method: "GET", path: "/version", code: 200},
		{method: "GET", path: "/version/", code: 200},
		{method: "POST", path: "/version", code: 405, reason: "MethodNotAllowed"},
		{method: "HEAD", path: "/version", code: 405},
		{method: "GET", path: "/version/x", code: 404, reason: "NotFound"},
	} {
		response := httptest.NewRecorder()
		mux.ServeHTTP(response, httptest.NewRequest(test.method, test.path, nil))
		if response.Code != test.code || !strings.Contains(response.Body.String(), test.reason) {
			t.Errorf("%s %s: got %d %s, want %d %s", test.method, test.path, response.Code, response.Body, test.code, test.reason)
		}
	}
}

// TestLogsRequireCleanPath checks that a path that is not clean serves no file.
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
	mux := &routing.Mux{API: newErrorAPI(t), LogFiles: dir}
	for _, test := range []struct {
		method, path string
		code         int
		text         string
	}{
		{method: "GET", path: "/logs/mine/own", code: 200, text: "mine"},
		{method: "GET", path: "/logs/mine/..own", code: 200, text: "dots"},
		{method: "GET", path: "/logs/others", code: 200, text: "secret"},
		{method: "GET", path: "/logs/mine/../others", code: 400, text: "invalid URL path"},
		{method: "GET", path: "/logs/mine/%2e%2e/others", code: 400, text: "invalid URL path"},
		{method: "GET", path: "/logs/mine/..%2Fothers", code: 400, text: "invalid URL path"},
		{method: "GET", path: "/logs/mine/x%5C..%5C..%5Cothers", code: 404},
		{method: "GET", path: "/logs//others", code: 400, text: "invalid URL path"},
		{method: "GET", path: "/logs/./others", code: 400, text: "invalid URL path"},
		{method: "GET", path: "/logs/mine/", code: 200, text: "..own"},
		{method: "GET", path: "/logs/..", code: 400, text: "invalid URL path"},
		{method: "POST", path: "/logs/mine/own", code: 405, text: "MethodNotAllowed"},
		{method: "HEAD", path: "/logs/mine/own", code: 405},
	} {
		response := httptest.NewRecorder()
		mux.ServeHTTP(response, httptest.NewRequest(test.method, test.path, nil))
		if response.Code != test.code || !strings.Contains(response.Body.String(), test.text) {
			t.Errorf("%s %s: got %d %s, want %d %s", test.method, test.path, response.Code, response.Body, test.code, test.text)
		}
	}
}

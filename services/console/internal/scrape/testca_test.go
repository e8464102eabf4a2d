package scrape

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
)

// testCA returns the certificate of all httptest servers.
func testCA(t *testing.T) []byte {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

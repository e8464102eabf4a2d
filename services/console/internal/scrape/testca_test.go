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
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

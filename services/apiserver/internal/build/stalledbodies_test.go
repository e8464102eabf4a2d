package build

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/config"
)

// TestStalledBodiesTimeOut checks that clients that do not send an announced body get a Status, and
// reserve no memory for it.
func TestStalledBodiesTimeOut(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, func(options *config.Options) { options.Serving.StallTimeout = 200 * time.Millisecond })
	tlsConfig := api.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	tlsConfig.NextProtos = []string{"http/1.1"}
	for _, test := range []struct{ method, path, contentType string }{
		{method: "POST", path: configMaps, contentType: "application/json"},
		{method: "PUT", path: configMaps + "/a", contentType: "application/json"},
		{method: "PATCH", path: "/api/v1/namespaces/default", contentType: mergePatch},
		{method: "DELETE", path: configMaps + "/a", contentType: "application/json"},
		{method: "DELETE", path: configMaps, contentType: "application/json"},
	} {
		conn, err := tls.Dial("tcp", api.server.listener.server.Addr().String(), tlsConfig)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn,
			"%s %s HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: 3000000\r\n\r\n{", test.method,
			test.path, test.contentType)
		httpResponse, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s %s: %v", test.method, test.path, err)
		}
		body, err := io.ReadAll(httpResponse.Body)
		if err != nil || httpResponse.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%s %s: got status %d: %s, %v, want no error and %v",
				test.method, test.path, httpResponse.StatusCode, body, err, http.StatusRequestTimeout)
		}
		conn.Close()
	}
	api.mustSend(200, "GET", "/api/v1/namespaces/default", "")
}

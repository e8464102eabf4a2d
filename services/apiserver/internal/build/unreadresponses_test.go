package build

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/config"
)

// sendUnfinished opens a connection, sends text, and leaves it open.
func (api *testServer) sendUnfinished(text string) {
	api.t.Helper()
	tlsConfig := api.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	tlsConfig.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", api.server.listener.server.Addr().String(), tlsConfig)
	if err != nil {
		api.t.Fatal(err)
	}
	api.t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		api.t.Fatal(err)
	}
}

// TestMissingBodiesHoldNoSeats uses a priority level with one seat.
func TestMissingBodiesHoldNoSeats(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.createFlow("alice", "tiny", `{"type":"Reject"}`, 0)
	for _, length := range []int{10, 100_000, 3_000_000} {
		api.sendUnfinished(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nImpersonate-User: alice\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{",
			configMaps, length))
		api.waitUntil("a free seat", func() bool { return api.get(configMaps, asUser("alice")...).code == 200 })
	}
	api.sendUnfinished("PUT " + configMaps +
		"/a HTTP/1.1\r\nHost: a\r\nImpersonate-User: alice\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
	api.waitUntil("a free seat", func() bool { return api.get(configMaps, asUser("alice")...).code == 200 })
	for range 20 {
		api.waitUntil("a free seat", func() bool { return api.get(configMaps, asUser("alice")...).code == 200 })
	}
}

// TestUnreadResponsesHoldNoSeats uses a priority level with one seat, for lists and for the initial
// objects of watches.
func TestUnreadResponsesHoldNoSeats(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, func(options *config.Options) { options.Serving.StallTimeout = time.Hour })
	for i := range 12 {
		api.mustSend(201, "POST", configMaps,
			fmt.Sprintf(`{"metadata":{"name":"large-%d"},"data":{"a":%q}}`, i, strings.Repeat("x", 1_000_000)))
	}
	api.createFlow("alice", "tiny", `{"type":"Reject"}`, 0)
	for _, query := range []string{"", "?watch=true", "?limit=100"} {
		for range 3 {
			api.sendUnfinished("GET " + configMaps + query + " HTTP/1.1\r\nHost: a\r\nImpersonate-User: alice\r\n\r\n")
			api.waitUntil("a free seat", func() bool { return api.get(configMaps+"/large-0", asUser("alice")...).code == 200 })
		}
	}
}

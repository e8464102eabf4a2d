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

// say opens a connection, sends text, and leaves it open.
func (a *api) say(text string) {
	a.t.Helper()
	tlsConfig := a.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	tlsConfig.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", a.server.listener.server.Addr().String(), tlsConfig)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		a.t.Fatal(err)
	}
}

// TestMissingBodiesHoldNoSeats uses a priority level with one seat.
func TestMissingBodiesHoldNoSeats(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	a.flowOf("alice", "tiny", `{"type":"Reject"}`, 0)
	for _, length := range []int{10, 100_000, 3_000_000} {
		a.say(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nImpersonate-User: alice\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{",
			configMaps, length))
		a.eventually("a free seat", func() bool { return a.get(configMaps, as("alice")...).code == 200 })
	}
	a.say("PUT " + configMaps +
		"/a HTTP/1.1\r\nHost: a\r\nImpersonate-User: alice\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
	a.eventually("a free seat", func() bool { return a.get(configMaps, as("alice")...).code == 200 })
	for range 20 {
		a.eventually("a free seat", func() bool { return a.get(configMaps, as("alice")...).code == 200 })
	}
}

// TestUnreadResponsesHoldNoSeats uses a priority level with one seat, for lists and for the initial
// objects of watches.
func TestUnreadResponsesHoldNoSeats(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	a := start(t, func(o *config.Options) { o.Serving.StallTimeout = time.Hour })
	for i := range 12 {
		a.want(201, "POST", configMaps,
			fmt.Sprintf(`{"metadata":{"name":"large-%d"},"data":{"a":%q}}`, i, strings.Repeat("x", 1_000_000)))
	}
	a.flowOf("alice", "tiny", `{"type":"Reject"}`, 0)
	for _, query := range []string{"", "?watch=true", "?limit=100"} {
		for range 3 {
			a.say("GET " + configMaps + query + " HTTP/1.1\r\nHost: a\r\nImpersonate-User: alice\r\n\r\n")
			a.eventually("a free seat", func() bool { return a.get(configMaps+"/large-0", as("alice")...).code == 200 })
		}
	}
}

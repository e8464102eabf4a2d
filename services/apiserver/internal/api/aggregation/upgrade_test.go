package aggregation_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestUpgradedConnectionsOutliveTheirRequest checks that an established connection does not end
// with the deadline of its request. It does not count as a request that waits for the server, but
// as a long-running connection.
func TestUpgradedConnectionsOutliveTheirRequest(t *testing.T) {
	authority := newAuthority(t)
	server := startExtension(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			serveResources(w, r)
			return
		}
		conn, readWriter, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprint(readWriter, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n")
		_ = readWriter.Flush()
		_, _ = io.Copy(conn, readWriter)
	})
	const limit = 8 // more than the requests that may wait
	slots := make(chan bool, limit)
	agg := start(t, func(_ *fixture, c *aggregation.Config) {
		c.MaxRequests = limit / 2
		c.AcquireSlot = func(*http.Request) (func(), error) {
			select {
			case slots <- true:
				return func() { <-slots }, nil
			default:
				return nil, errors.New("no slot left")
			}
		}
	})
	agg.register(server, authority.pem)
	life, shutdown := context.WithCancel(t.Context())
	deadlines, started := make(chan context.CancelFunc, 8), make(chan bool, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := requesttest.WithInfo(
			requesttest.WithUser((&requesttest.Work{OnStarted: func() { started <- true }}).With(life), eve),
			&requestinfo.Info{Verb: "get", IsResource: true},
		)
		request.FromContext(ctx).Lifetime = ctx
		ctx, end := context.WithCancel(ctx) // like a deadline
		defer end()
		deadlines <- end
		agg.Handler(gv).ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(s.Close)
	var conns []net.Conn
	var reads []*bufio.Reader
	// upgrade requests an upgrade and requires a status code.
	upgrade := func(want int) (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(
			conn,
			"GET /apis/ext.test/v1/namespaces/n/things/x/console HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n",
		)
		read := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(read, nil); err != nil || resp.StatusCode != want {
			t.Fatalf("upgrade: got response %+v, %v, want status %d", resp, err, want)
		}
		return conn, read
	}
	for range limit {
		conn, read := upgrade(http.StatusSwitchingProtocols)
		<-started
		(<-deadlines)()
		conns, reads = append(conns, conn), append(reads, read)
	}
	upgrade(http.StatusTooManyRequests)
	for i, conn := range conns {
		sent := strings.Repeat("x", i) + "\n"
		fmt.Fprint(conn, sent)
		if line, err := reads[i].ReadString('\n'); line != sent {
			t.Errorf("connection %d after the deadline of its request: got echo %q, %v, want %q", i, line, err, sent)
		}
	}
	shutdown()
	for i, read := range reads {
		if _, err := read.ReadByte(); err == nil {
			t.Errorf("connection %d after shutdown: got a byte, want it closed", i)
		}
	}
	for range limit { // all slots were released
		slots <- true
	}
}

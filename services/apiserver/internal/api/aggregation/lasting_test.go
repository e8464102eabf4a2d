package aggregation_test

import (
	"bufio"
	"context"
	"crypto/x509"
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
)

// TestUpgradedConnectionsLast: once the other server agrees a connection ends neither with the
// deadline of its request, nor does it hold a place of those who wait for the server, but one
// of those that last.
func TestUpgradedConnectionsLast(t *testing.T) {
	ca := newAuthority(t)
	e := extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			plain(w, r)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	})
	const most = 8 // more than may wait
	places := make(chan bool, most)
	b := start(t, func(_ *bench, c *aggregation.Config) {
		c.MaxRequests = most / 2
		c.Place = func(*http.Request) (func(), error) {
			select {
			case places <- true:
				return func() { <-places }, nil
			default:
				return nil, errors.New("there is none")
			}
		}
	})
	b.register(e, ca.pem)
	life, shutdown := context.WithCancel(t.Context())
	deadlines, begun := make(chan context.CancelFunc, 8), make(chan bool, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := requestinfo.Carry(request.WithUser(request.WithBegun(life, func() { begun <- true }), eve), &requestinfo.Info{Verb: "get", IsResource: true})
		request.SetLife(ctx)
		ctx, end := context.WithCancel(ctx) // as a deadline does
		defer end()
		deadlines <- end
		b.Handler(gv).ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(s.Close)
	var conns []net.Conn
	var reads []*bufio.Reader
	upgrade := func(want int) (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, "GET /apis/ext.test/v1/namespaces/n/things/x/console HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n")
		read := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(read, nil); err != nil || resp.StatusCode != want {
			t.Fatalf("got %+v, %v, want %d", resp, err, want)
		}
		return conn, read
	}
	for range most {
		conn, read := upgrade(http.StatusSwitchingProtocols)
		<-begun
		(<-deadlines)()
		conns, reads = append(conns, conn), append(reads, read)
	}
	upgrade(http.StatusTooManyRequests)
	for i, conn := range conns {
		said := strings.Repeat("x", i) + "\n"
		fmt.Fprint(conn, said)
		if line, err := reads[i].ReadString('\n'); line != said {
			t.Errorf("after the deadline: %q, %v", line, err)
		}
	}
	shutdown()
	for _, read := range reads {
		if _, err := read.ReadByte(); err == nil {
			t.Error("it goes on after the server's end")
		}
	}
	for range most { // all are given back
		places <- true
	}
}

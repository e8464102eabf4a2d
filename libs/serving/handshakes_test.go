package serving_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

const handshakeMetric = "binnacle_tls_handshakes_total"

// mutedConn is a connection on which nothing arrives until it is closed.
type mutedConn struct {
	net.Conn
	closed chan struct{}
}

func (d mutedConn) Read([]byte) (int, error) {
	<-d.closed
	return 0, net.ErrClosed
}

// TestStalledHandshakesDoNotBlockOthers checks that many unfinished handshakes do not delay other
// clients.
func TestStalledHandshakesDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	const clients = 50
	for name, begin := range map[string]func(t *testing.T, conn net.Conn){
		"partial ClientHello": func(t *testing.T, conn net.Conn) {
			if _, err := conn.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}); err != nil {
				t.Fatal(err)
			}
		},
		"after ServerHello": func(t *testing.T, conn net.Conn) {
			muted := mutedConn{conn, make(chan struct{})}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = tls.Client(muted, &tls.Config{InsecureSkipVerify: true}).Handshake() // sends the ClientHello only
			}()
			t.Cleanup(func() { close(muted.closed); <-done })
			if _, err := conn.Read(make([]byte, 1)); err != nil { // the ServerHello
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testServer := startServer(t, testOptions(t), nil, helloHandler)
			for range clients {
				conn, err := net.Dial("tcp", testServer.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				begin(t, conn)
			}
			if _, body := testServer.get(t, "/x"); body != "hello" {
				t.Errorf("body = %q, want hello", body)
			}
			if n := testServer.count(t, handshakeMetric, ""); n != 1 {
				t.Errorf("%v handshakes were counted, want 1", n)
			}
		})
	}
}

// TestManyHandshakesSucceed checks that many concurrent handshakes complete.
func TestManyHandshakesSucceed(t *testing.T) {
	testServer := startServer(t, testOptions(t), nil, helloHandler)
	const clients = 200
	failed := make(chan error, clients)
	for range clients {
		go func() {
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig:   testServer.client.Transport.(*http.Transport).TLSClientConfig.Clone(),
				DisableKeepAlives: true,
			}}
			resp, err := client.Get(testServer.url + "/x")
			if err == nil {
				resp.Body.Close()
			}
			failed <- err
		}()
	}
	for range clients {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if n := testServer.count(t, handshakeMetric, "ok"); n != clients {
		t.Errorf("counted %v handshakes, want all", n)
	}
}

// TestShutdownEndsHandshakes checks that a shutdown waits only for a while for an unfinished
// handshake.
func TestShutdownEndsHandshakes(t *testing.T) {
	t.Parallel()
	testServer := startServer(t, testOptions(t), nil, helloHandler)
	conn, err := net.Dial("tcp", testServer.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if resp, _ := testServer.get(t, "/x"); resp.StatusCode != http.StatusOK { // so the other connection has been accepted
		t.Error(resp.Status)
	}
	testServer.stop()
	testServer.waitForShutdown(t)
	if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("got read error %v, want a closed connection", err)
	}
}

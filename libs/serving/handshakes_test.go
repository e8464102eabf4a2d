package serving_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const shaken = "binnacle_tls_handshakes_total"

// deaf is a connection on which nothing is heard until it is closed.
type deaf struct {
	net.Conn
	end chan struct{}
}

func (d deaf) Read([]byte) (int, error) {
	<-d.end
	return 0, net.ErrClosed
}

// TestHandshakesThatStall: clients begin a handshake and do not end it, as many as
// like to; whoever else comes is served.
func TestHandshakesThatStall(t *testing.T) {
	const clients = 50
	for name, begin := range map[string]func(t *testing.T, conn net.Conn){
		"in the greeting": func(t *testing.T, conn net.Conn) {
			if _, err := conn.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}); err != nil {
				t.Fatal(err)
			}
		},
		"after the server's part": func(t *testing.T, conn net.Conn) {
			d := deaf{conn, make(chan struct{})}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = tls.Client(d, &tls.Config{InsecureSkipVerify: true}).Handshake() // the greeting, and no more
			}()
			t.Cleanup(func() { close(d.end); <-done })
			if _, err := conn.Read(make([]byte, 1)); err != nil { // the answer
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, testOptions(t), nil, hello)
			for range clients {
				conn, err := net.Dial("tcp", r.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				begin(t, conn)
			}
			if _, body := r.get(t, "/x"); body != "hello" {
				t.Errorf("answered %q", body)
			}
			if n := r.count(t, shaken, ""); n != 1 {
				t.Errorf("%v handshakes were counted", n)
			}
		})
	}
}

// TestHandshakesThatStallEnd: they have as long as a good client waits.
func TestHandshakesThatStallEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *running) {
		conn, err := r.connect(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte{22, 3, 1}); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("it goes on: %v", err)
		}
		if synctest.Wait(); r.count(t, shaken, "late") != 1 {
			t.Error("it is not counted")
		}
	})
}

// TestManyHandshakes: all of many at once come to their end.
func TestManyHandshakes(t *testing.T) {
	r := start(t, testOptions(t), nil, hello)
	const clients = 200
	failed := make(chan error, clients)
	for range clients {
		go func() {
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: r.client.Transport.(*http.Transport).TLSClientConfig.Clone(), DisableKeepAlives: true}}
			resp, err := c.Get(r.url + "/x")
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
	if n := r.count(t, shaken, "ok"); n != clients {
		t.Errorf("%v handshakes were counted", n)
	}
}

// TestClientsWithoutTLS are told what is wrong.
func TestClientsWithoutTLS(t *testing.T) {
	r := start(t, testOptions(t), nil, hello)
	conn, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got, _ := io.ReadAll(conn); !strings.HasPrefix(string(got), "HTTP/1.0 400") || !strings.Contains(string(got), "an HTTP request to an HTTPS server") {
		t.Errorf("answered %q", got)
	}
	if n := r.count(t, shaken, "failed"); n != 1 {
		t.Errorf("%v failed", n)
	}
}

// TestShutdownEndsHandshakes: nobody waits for a client that does not go on.
func TestShutdownEndsHandshakes(t *testing.T) {
	r := start(t, testOptions(t), nil, hello)
	conn, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if resp, _ := r.get(t, "/x"); resp.StatusCode != http.StatusOK { // so the other has been accepted
		t.Error(resp.Status)
	}
	r.stop()
	r.wait(t)
	if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("it goes on: %v", err)
	}
}

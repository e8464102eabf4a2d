package responselimit_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/proxy/responselimit"
)

// TestLongResponseHeadFails checks that a transport rejects a response head of more than MaxHead
// bytes.
func TestLongResponseHeadFails(t *testing.T) {
	for size, want := range map[int]string{
		responselimit.MaxHead / 2: "",
		responselimit.MaxHead:     "server response headers exceeded",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", size))
		}))
		defer s.Close()
		transport := new(http.Transport)
		responselimit.LimitTransport(transport)
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("head of %d bytes: got %v, want %q", size, err, want)
		}
	}
}

// TestSmallWritesDelayReads reads messages and replies to each, as HTTP/2 clients reply to pings.
// Short replies to short messages delay reads. Short replies to long messages and long replies do
// not.
func TestSmallWritesDelayReads(t *testing.T) {
	const messages = 10_000
	for _, test := range []struct {
		name           string
		message, reply int // in bytes
		delayed        bool
	}{
		{name: "pings", message: 17, reply: 39, delayed: true},
		{name: "window updates", message: 4 << 10, reply: 35},
		{name: "requests", message: 100, reply: 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clientConn, serverConn := net.Pipe()
				defer serverConn.Close()
				go func() { _, _ = io.Copy(io.Discard, serverConn) }()
				go func() {
					for range messages {
						if _, err := serverConn.Write(make([]byte, test.message)); err != nil {
							return
						}
					}
				}()
				transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return clientConn, nil }}
				responselimit.LimitTransport(transport)
				conn, err := transport.DialContext(t.Context(), "tcp", "server:443")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				start := time.Now()
				for range messages {
					if _, err := io.ReadFull(conn, make([]byte, test.message)); err != nil {
						t.Fatal(err)
					}
					if _, err := conn.Write(make([]byte, test.reply)); err != nil {
						t.Fatal(err)
					}
				}
				if elapsed := time.Since(start); elapsed > 10*time.Second != test.delayed { // in the fake time of synctest
					t.Errorf("got %v for all reads, want delays: %t", elapsed, test.delayed)
				}
			})
		})
	}
}

// TestCloseEndsDelay checks that Close unblocks a read that is delayed.
func TestCloseEndsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientConn, serverConn := net.Pipe()
		defer serverConn.Close()
		go func() { _, _ = io.Copy(io.Discard, serverConn) }()
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return clientConn, nil }}
		responselimit.LimitTransport(transport)
		conn, err := transport.DialContext(t.Context(), "tcp", "server:443")
		if err != nil {
			t.Fatal(err)
		}
		for range 100_000 {
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		time.AfterFunc(time.Second, func() { conn.Close() })
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(start) > time.Second {
			t.Errorf("got %v after %v, want an error when the connection is closed", err, time.Since(start))
		}
	})
}

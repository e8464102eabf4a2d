package serving_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/libs/serving"
	"binnacle/libs/serving/exchange"
)

// Arguments of startStalling: whether requests are long-running.
const shortRequests, longRequests = false, true

// startStalling starts a server. The channel receives the error that its handler returns.
func startStalling(t *testing.T, o *serving.Options, areLong bool,
	handler func(w http.ResponseWriter, r *http.Request) error) (*testServer, chan error) {
	t.Helper()
	handlerErr := make(chan error, 1)
	r := startServer(t, o, func(*http.Request) bool { return areLong }, func(*serving.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlerErr <- handler(w, r)
		})
	})
	return r, handlerErr
}

// withStallLimit returns a handler that calls LimitStall first.
func withStallLimit(handler func(w http.ResponseWriter, r *http.Request) error) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		exchange.LimitStall(struct{ http.ResponseWriter }{w}) // has no effect on a writer without Unwrap
		exchange.LimitStall(w)
		return handler(w, r)
	}
}

func shortStallOptions(t *testing.T) *serving.Options {
	o := testOptions(t)
	o.StallTimeout = 200 * time.Millisecond // long enough that a slow test run does not stall itself
	return o
}

// dial connects with one protocol. The test deadline of the connection is far in the future.
func dial(t *testing.T, r *testServer, proto string) *tls.Conn {
	t.Helper()
	raw, err := r.connect(t.Context(), "tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}})
	t.Cleanup(func() { conn.Close() })
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// rawHTTP2 is an HTTP/2 client that controls its flow-control windows.
type rawHTTP2 struct {
	*http2.Framer
	t *testing.T
}

func dialHTTP2(t *testing.T, r *testServer, window uint32) *rawHTTP2 {
	t.Helper()
	conn := dial(t, r, "h2")
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &rawHTTP2{Framer: http2.NewFramer(conn, conn), t: t}
	if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *rawHTTP2) request(id uint32, method string, end bool) {
	c.t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "a"}, {":path", "/x"}} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := c.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      id,
		BlockFragment: block.Bytes(),
		EndHeaders:    true,
		EndStream:     end,
	}); err != nil {
		c.t.Fatal(err)
	}
}

// readUntilEnd reads until the server resets or ends a stream. It returns "reset" or "end".
func (c *rawHTTP2) readUntilEnd(id uint32) string {
	c.t.Helper()
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		switch {
		case frame.Header().StreamID != id:
		case frame.Header().Type == http2.FrameRSTStream:
			return "reset"
		case frame.Header().Flags.Has(http2.FlagDataEndStream) && (frame.Header().Type == http2.FrameData ||
			frame.Header().Type == http2.FrameHeaders):
			return "end"
		}
	}
}

func readAll(w http.ResponseWriter, r *http.Request) error {
	_, err := io.ReadAll(r.Body)
	w.WriteHeader(http.StatusBadRequest)
	return err
}

// TestMissingBodyTimesOut checks that a read of a body that never arrives fails.
func TestMissingBodyTimesOut(t *testing.T) {
	t.Parallel()
	t.Run("HTTP/1", func(t *testing.T) {
		r, handlerErr := startStalling(t, shortStallOptions(t), shortRequests, readAll)
		conn := dial(t, r, "http/1.1")
		fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
		if err := <-handlerErr; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading the body = %v, want a deadline error", err)
		}
		if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400") {
			t.Errorf("got %q, %v, want a 400 response and the end of the connection", got, err)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		r, handlerErr := startStalling(t, shortStallOptions(t), shortRequests, readAll)
		rawHTTP2 := dialHTTP2(t, r, 1<<16)
		rawHTTP2.request(1, "POST", false)
		if err := <-handlerErr; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading the body = %v, want a deadline error", err)
		}
		rawHTTP2.readUntilEnd(1)
	})
}

// TestTricklingBodyTimesOut checks that a body that arrives byte by byte ends with the request
// timeout.
func TestTricklingBodyTimesOut(t *testing.T) {
	o := shortStallOptions(t)
	o.StallTimeout, o.RequestTimeout = 10*time.Second, 100*time.Millisecond
	testServer, handlerErr := startStalling(t, o, shortRequests, readAll)
	body, in := io.Pipe()
	go func() {
		defer in.Close()
		for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
			if _, err := in.Write([]byte("x")); err != nil {
				tick.Stop()
				return
			}
		}
	}()
	resp, err := testServer.client.Post(testServer.url+"/x", "text/plain", body)
	if err == nil {
		resp.Body.Close()
	}
	body.Close()
	if err := <-handlerErr; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading the body = %v, want a deadline error", err)
	}
}

// TestUnreadBodyDoesNotBlockResponse checks that the connection ends if the client does not send a
// body that the handler ignores. net/http reads the rest of the body before it responds.
func TestUnreadBodyDoesNotBlockResponse(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 1 << 20} {
		r, handlerErr := startStalling(t, shortStallOptions(t), shortRequests, func(w http.ResponseWriter, _ *http.Request) error {
			_, err := w.Write(make([]byte, size))
			return err
		})
		conn := dial(t, r, "http/1.1")
		fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
		<-handlerErr
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || err != nil && size == 1 {
			t.Errorf("reading the response of %d bytes = %v, want the end of the connection without a timeout", size, err)
		}
	}
}

// writeUntilError writes 64 MiB or until a write fails.
func writeUntilError(w http.ResponseWriter, _ *http.Request) error {
	for range 1024 {
		if _, err := w.Write(make([]byte, 64<<10)); err != nil {
			return err
		}
	}
	return nil
}

// flushUntilError writes and flushes small parts of 1 GiB, until one fails.
func flushUntilError(w http.ResponseWriter, r *http.Request) error {
	for range 1 << 20 {
		if _, err := w.Write(make([]byte, 1000)); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
	}
	return nil
}

// TestUnreadResponseIsAborted checks that writes fail if the client does not read the response.
func TestUnreadResponseIsAborted(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]bool{"short": false, "watch": true} {
		for what, write := range map[string]func(http.ResponseWriter, *http.Request) error{
			"writes":  writeUntilError,
			"flushed": flushUntilError,
		} {
			if long {
				write = withStallLimit(write)
			}
			t.Run(name+" HTTP/1 "+what, func(t *testing.T) {
				t.Parallel()
				r, handlerErr := startStalling(t, shortStallOptions(t), long, write)
				conn := dial(t, r, "http/1.1")
				fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
				if err := <-handlerErr; err == nil {
					t.Error("write to a client that does not read = nil, want an error")
				}
			})
			for _, implementation := range []string{"own", "standard"} {
				t.Run(name+" HTTP/2 "+what+" "+implementation, func(t *testing.T) {
					t.Parallel()
					o := shortStallOptions(t)
					o.HTTP2Implementation = implementation
					r, handlerErr := startStalling(t, o, long, write)
					c := dialHTTP2(t, r, 0)
					c.request(1, "GET", true)
					if got := c.readUntilEnd(1); got != "reset" {
						t.Errorf("stream ended with %s, want reset", got)
					}
					if err := <-handlerErr; err == nil {
						t.Error("write to a client that does not read = nil, want an error")
					}
				})
			}
		}
	}
}

// TestUnreadHijackedConnectionTimesOut checks that writes to the hijacked connection of a watch are
// limited.
func TestUnreadHijackedConnectionTimesOut(t *testing.T) {
	t.Parallel()
	for what, write := range map[string]func(net.Conn, *bufio.ReadWriter) error{
		"connection": func(c net.Conn, _ *bufio.ReadWriter) error { _, err := c.Write(make([]byte, 64<<10)); return err },
		"buffer":     func(_ net.Conn, b *bufio.ReadWriter) error { _, err := b.Write(make([]byte, 64<<10)); return err },
	} {
		t.Run(what, func(t *testing.T) {
			testServer, handlerErr := startStalling(t, shortStallOptions(t), longRequests,
				withStallLimit(func(w http.ResponseWriter, _ *http.Request) error {
					conn, readWriter, err := http.NewResponseController(w).Hijack()
					if err != nil {
						return err
					}
					defer conn.Close()
					for range 1024 {
						if err := write(conn, readWriter); err != nil {
							return err
						}
					}
					return nil
				}))
			conn := dial(t, testServer, "http/1.1")
			fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
			if err := <-handlerErr; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("writing = %v, want a deadline error", err)
			}
		})
	}
}

// TestUnreadSmallResponseIsReset checks that a buffered response that the client does not read is
// reset after the handler has returned.
func TestUnreadSmallResponseIsReset(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]bool{"short": false, "long-running": true} {
		t.Run(name, func(t *testing.T) {
			o := shortStallOptions(t)
			o.RequestTimeout = 50 * time.Millisecond
			r, _ := startStalling(t, o, long, func(w http.ResponseWriter, _ *http.Request) error {
				_, err := io.WriteString(w, "hello")
				return err
			})
			c := dialHTTP2(t, r, 0)
			c.request(1, "GET", true)
			if got := c.readUntilEnd(1); got != "reset" {
				t.Errorf("stream ended with %s, want reset", got)
			}
		})
	}
}

// TestIdleWatchIsNotAborted checks that a silent watch and a slow client are not aborted, and that
// a connection survives a request whose body was not read.
func TestIdleWatchIsNotAborted(t *testing.T) {
	t.Parallel()
	options := shortStallOptions(t)
	options.StallTimeout, options.RequestTimeout = 20*time.Millisecond, 20*time.Millisecond
	for _, http1 := range []bool{false, true} {
		options := *options
		options.DisableHTTP2 = http1
		testServer, handlerErr := startStalling(t, &options, longRequests, withStallLimit(func(w http.ResponseWriter, r *http.Request) error {
			for range 5 {
				if _, err := io.WriteString(w, "line\n"); err != nil {
					return err
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					return err
				}
				select { // the silence is the condition under test
				case <-time.After(3 * options.StallTimeout):
				case <-r.Context().Done():
					return r.Context().Err()
				}
			}
			return nil
		}))
		resp, err := testServer.client.Post(testServer.url+"/x", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for s := bufio.NewScanner(resp.Body); s.Scan(); lines++ {
		}
		resp.Body.Close()
		if err := <-handlerErr; err != nil || lines != 5 {
			t.Errorf("%s: got %d lines, %v, want 5", resp.Proto, lines, err)
		}
	}
}

// TestHTTP1ConnectionIsReused checks that a connection serves further requests after responses and
// bodies of several sizes.
func TestHTTP1ConnectionIsReused(t *testing.T) {
	t.Parallel()
	options := shortStallOptions(t)
	options.DisableHTTP2 = true
	testServer, handlerErr := startStalling(t, options, shortRequests, func(w http.ResponseWriter, r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = w.Write(body)
		}
		return err
	})
	conn := dial(t, testServer, "http/1.1")
	in := bufio.NewReader(conn)
	for _, size := range []int{0, 1, 5000, 300 << 10} {
		req, err := http.NewRequest(http.MethodPost, testServer.url+"/x", bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		if err := req.Write(conn); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, req)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != int64(size) {
			t.Errorf("got %d bytes, %v, want %d", n, err, size)
		}
		if err := <-handlerErr; err != nil {
			t.Error(err)
		}
		<-time.After(3 * options.StallTimeout) // no deadline may remain
	}
}

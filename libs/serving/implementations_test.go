package serving_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/libs/serving"
	"binnacle/libs/serving/exchange"
)

// eachProtocol runs a test with each implementation of HTTP/2, and with HTTP/1.1.
func eachProtocol(t *testing.T, test func(t *testing.T, options *serving.Options)) {
	for _, name := range []string{"own", "standard", "http1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := shortStallOptions(t)
			options.DisableHTTP2 = name == "http1"
			if !options.DisableHTTP2 {
				options.HTTP2Implementation = name
			}
			test(t, options)
		})
	}
}

// TestAllProtocolsServe checks large responses, echoed bodies, "Connection: close" and watches.
func TestAllProtocolsServe(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<16)
	eachProtocol(t, func(t *testing.T, o *serving.Options) {
		events := make(chan string)
		testServer := startServer(t, o, func(r *http.Request) bool { return r.URL.Path == "/watch" }, func(*serving.Server) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/large":
					_, _ = io.WriteString(w, large)
				case "/echo":
					_, _ = io.Copy(w, r.Body)
				case "/close":
					w.Header().Set("Connection", "close")
				case "/watch":
					exchange.LimitStall(w)
					for e := range events {
						_ = exchange.Send(w, []byte(e+"\n"))
					}
				}
			})
		})
		if _, body := testServer.get(t, "/large"); body != large {
			t.Errorf("got %d bytes, want the %d that were sent", len(body), len(large))
		}
		resp, err := testServer.client.Post(testServer.url+"/echo", "text/plain", strings.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != large {
			t.Errorf("got %d bytes, %v, want the %d that were sent", len(body), err, len(large))
		}
		watch := make(chan *http.Response)
		go func() {
			resp, err := testServer.client.Get(testServer.url + "/watch")
			if err != nil {
				t.Error(err)
			}
			watch <- resp
		}()
		events <- "first"
		resp = <-watch
		defer resp.Body.Close()
		for range 3 {
			testServer.get(t, "/close") // the watch continues on its connection
		}
		go func() {
			events <- "second"
			close(events)
		}()
		lines := bufio.NewScanner(resp.Body)
		for _, want := range []string{"first", "second"} {
			if !lines.Scan() || lines.Text() != want {
				t.Errorf("watch line = %q, %v; want %q", lines.Text(), lines.Err(), want)
			}
		}
	})
}

// throttledConn is a connection with a receive buffer of fixed size that is read at a rate.
type throttledConn struct {
	net.Conn
	rate int // bytes per second
}

func (c throttledConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 16<<10)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate)) // simulates the rate of the line
	return n, err
}

// slowClient returns a client whose connections are throttled.
func slowClient(t *testing.T, r *testServer, o *serving.Options, rate int) *http.Client {
	t.Helper()
	client := newClient(t, o.CertFile, nil)
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := r.connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := conn.(*net.TCPConn).SetReadBuffer(128 << 10); err != nil {
			return nil, err
		}
		return throttledConn{conn, rate}, nil
	}
	return client
}

// TestSlowClientGetsWholeResponse checks that concurrent responses to a client that keeps reading
// complete, although they take longer than the timeouts.
func TestSlowClientGetsWholeResponse(t *testing.T) {
	t.Parallel()
	const size, responses, rate = 600_000, 8, 2_000_000
	eachProtocol(t, func(t *testing.T, o *serving.Options) {
		testServer := startServer(t, o, nil, func(*serving.Server) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
		})
		client := slowClient(t, testServer, o, rate)
		var clients sync.WaitGroup
		for range responses {
			clients.Go(func() {
				resp, err := client.Get(testServer.url + "/x")
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size {
					t.Errorf("got %d bytes, %v, want %d", n, err, size)
				}
			})
		}
		clients.Wait()
	})
}

// TestShutdownWaitsForSlowClients checks that everything that was sent arrives, including bytes
// that the kernel has not sent when the server ends.
func TestShutdownWaitsForSlowClients(t *testing.T) {
	t.Parallel()
	const size, rate = 1_500_000, 1_000_000
	eachProtocol(t, func(t *testing.T, options *serving.Options) {
		if options.HTTP2Implementation == "standard" {
			t.Skip("net/http closes a connection a second after its last stream, even if the kernel has bytes to send")
		}
		testServer := startServer(t, options, nil, func(*serving.Server) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
		})
		resp, err := slowClient(t, testServer, options, rate).Get(testServer.url + "/x")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		testServer.stop()
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size {
			t.Errorf("got %d bytes, %v, want %d", n, err, size)
		}
	})
}

// TestShutdownWaitsForWindows checks that a response is delivered if the client opens the window
// after the handler has returned.
func TestShutdownWaitsForWindows(t *testing.T) {
	t.Parallel()
	for _, implementation := range []string{"own", "standard"} {
		t.Run(implementation, func(t *testing.T) {
			options := testOptions(t)
			options.HTTP2Implementation = implementation
			testServer, handlerErr := startStalling(t, options, false, func(w http.ResponseWriter, _ *http.Request) error {
				_, err := io.WriteString(w, "hello")
				return err
			})
			rawHTTP2 := dialHTTP2(t, testServer, 0)
			rawHTTP2.request(1, "GET", true)
			if err := <-handlerErr; err != nil {
				t.Fatal(err)
			}
			testServer.stop()
			<-testServer.Timeline().NotAcceptingNewRequest.Signaled()
			select {
			case <-testServer.Timeline().HTTPServerStoppedListening.Signaled():
				t.Error("HTTPServerStoppedListening happened before the response was read, want it after")
			case <-time.After(time.Second): // longer than closeGrace
			}
			if err := rawHTTP2.WriteWindowUpdate(1, 100); err != nil {
				t.Fatal(err)
			}
			if got := rawHTTP2.readUntilEnd(1); got != "end" {
				t.Errorf("stream ended with %s, want end", got)
			}
		})
	}
}

// TestNoAcceptedRequestIsLost sends 2,000 requests, while responses close their connections. The
// clients retry only requests that the server did not accept.
func TestNoAcceptedRequestIsLost(t *testing.T) {
	eachProtocol(t, func(t *testing.T, options *serving.Options) {
		options.StallTimeout = time.Minute
		var served atomic.Int64
		testServer := startServer(t, options, nil, func(*serving.Server) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if served.Add(1)%50 == 0 {
					w.Header().Set("Connection", "close")
				}
				_, _ = fmt.Fprint(w, r.URL.Path)
			})
		})
		var clients sync.WaitGroup
		for client := range 20 {
			httpClient := newClient(t, options.CertFile, nil)
			clients.Go(func() {
				for i := range 100 {
					path := fmt.Sprintf("/%d/%d", client, i)
					resp, err := httpClient.Get(testServer.url + path)
					if err != nil {
						t.Error(err)
						continue
					}
					if body, err := io.ReadAll(resp.Body); err != nil || string(body) != path {
						t.Errorf("%s: %q, %v, want %s", path, body, err, path)
					}
					resp.Body.Close()
				}
			})
		}
		clients.Wait()
	})
}

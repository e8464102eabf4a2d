package slowclients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"binnacle/e2e/harness"
)

// client reads and writes through a link. Paths begin with a slash.
type client interface {
	// connect is called before anything else.
	connect(context.Context) error
	// readLists reads all paths at once and calls check with each body, or with an error.
	readLists(ctx context.Context, paths []string, check func(body io.Reader, err error))
	// create posts a JSON body, and returns an error unless the object is created.
	create(ctx context.Context, path string, body []byte) error
	// watch calls event with each line until it returns false.
	watch(ctx context.Context, path string, event func(line []byte) bool) error
}

// clientKind is a kind of client.
type clientKind struct {
	name string
	// multiplexed clients send everything on one connection.
	multiplexed bool
	start       func(t testing.TB, s *harness.Server, l *link) client
}

var clientKinds = []clientKind{
	{"Go, HTTP/1.1", false, func(t testing.TB, s *harness.Server, l *link) client {
		return newGoClient(t, &http.Transport{TLSClientConfig: tlsConfig(t, s, "http/1.1")}, l)
	}},
	{"Go, HTTP/2", true, func(t testing.TB, s *harness.Server, l *link) client {
		return newGoClient(t, &http.Transport{TLSClientConfig: tlsConfig(t, s, "h2"), ForceAttemptHTTP2: true}, l)
	}},
	{"x/net, HTTP/2", true, func(t testing.TB, s *harness.Server, l *link) client {
		transport := &http.Transport{TLSClientConfig: tlsConfig(t, s, "h2")}
		h2, err := http2.ConfigureTransports(transport)
		if err != nil {
			t.Fatal(err)
		}
		h2.ReadIdleTimeout = 30 * time.Second
		h2.PingTimeout = 15 * time.Second // as in client-go
		return newGoClient(t, transport, l)
	}},
	{"curl, HTTP/1.1", false, func(t testing.TB, s *harness.Server, l *link) client {
		return newCurlClient(t, s, l, "--http1.1")
	}},
	{"curl, HTTP/2", true, func(t testing.TB, s *harness.Server, l *link) client {
		return newCurlClient(t, s, l, "--http2")
	}},
}

// tlsConfig returns the TLS configuration of an administrator for one protocol.
func tlsConfig(t testing.TB, s *harness.Server, protocol string) *tls.Config {
	t.Helper()
	c, err := tls.X509KeyPair(s.Admin.Cert, s.Admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{c}, InsecureSkipVerify: true, NextProtos: []string{protocol}}
}

// goClient is a client of net/http.
type goClient struct{ http.Client }

// newGoClient returns a client with a transport of net/http over a link.
func newGoClient(t testing.TB, transport *http.Transport, l *link) client {
	t.Helper()
	transport.DisableCompression = true
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Control: limitBuffers}).DialContext(ctx, network, l.addr)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &goClient{http.Client{Transport: transport}}
}

// send sends a request.
func (c *goClient) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(r)
	if err == nil && resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp, err
}

// connect opens the connection that later requests share. Without it net/http would open one for
// each request that it sends before it knows that the server supports HTTP/2.
func (c *goClient) connect(ctx context.Context) error {
	resp, err := c.send(ctx, "GET", "/version", nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// readLists implements client.
func (c *goClient) readLists(ctx context.Context, paths []string, check func(io.Reader, error)) {
	var all sync.WaitGroup
	for _, path := range paths {
		all.Go(func() {
			resp, err := c.send(ctx, "GET", path, nil)
			if err != nil {
				check(nil, err)
				return
			}
			defer resp.Body.Close()
			check(resp.Body, nil)
		})
	}
	all.Wait()
}

// create implements client.
func (c *goClient) create(ctx context.Context, path string, body []byte) error {
	resp, err := c.send(ctx, "POST", path, body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// watch implements client.
func (c *goClient) watch(ctx context.Context, path string, event func([]byte) bool) error {
	resp, err := c.send(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return forEachLine(resp.Body, event)
}

// forEachLine calls event with each line until it returns false.
func forEachLine(r io.Reader, event func([]byte) bool) error {
	for buffered := bufio.NewReader(r); ; {
		line, err := buffered.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the watch ended: %w", err)
		}
		if !event(line) {
			return nil
		}
	}
}

// curlClient is a client that runs curl.
type curlClient struct {
	path    string
	args    []string
	baseURL string // scheme and host of URLs
	dir     string
}

// newCurlClient returns a client that runs curl over a link.
func newCurlClient(t testing.TB, s *harness.Server, l *link, protocol string) client {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err) // cells without curl are left out before
	}
	return &curlClient{path, []string{
		"--silent", "--show-error", "--fail-early", "--fail", "--insecure", protocol,
		"--cert", s.Admin.CertFile, "--key", s.Admin.KeyFile, "--header", "Content-Type: application/json",
	}, "https://" + l.addr, t.TempDir()}
}

// command returns a run of curl.
func (c *curlClient) command(ctx context.Context, stdin io.Reader, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.path, append(append([]string{}, c.args...), args...)...)
	cmd.Stdin = stdin
	return cmd
}

func (*curlClient) connect(context.Context) error { return nil } // each run connects

// readLists implements client.
func (c *curlClient) readLists(ctx context.Context, paths []string, check func(io.Reader, error)) {
	args := []string{"--parallel", "--parallel-max", "100"}
	for i, path := range paths {
		args = append(args, "--globoff", "--output", c.outputFile(i), c.baseURL+path)
	}
	out, err := c.command(ctx, nil, args...).CombinedOutput()
	for i := range paths {
		file, missing := os.Open(c.outputFile(i))
		if missing != nil {
			check(nil, errors.Join(err, errors.New(strings.TrimSpace(string(out)))))
			continue
		}
		check(file, nil)
		_ = file.Close()
	}
}

// outputFile returns the file for the response to the i-th request.
func (c *curlClient) outputFile(i int) string { return filepath.Join(c.dir, fmt.Sprintf("list-%d", i)) }

// create implements client.
func (c *curlClient) create(ctx context.Context, path string, body []byte) error {
	out, err := c.command(ctx, bytes.NewReader(body), "--data-binary", "@-", "--output", c.outputFile(0),
		c.baseURL+path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// watch implements client.
func (c *curlClient) watch(ctx context.Context, path string, event func([]byte) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := c.command(ctx, nil, "--no-buffer", "--globoff", c.baseURL+path)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = forEachLine(out, event)
	cancel()
	_ = cmd.Wait() // it is killed
	if err != nil {
		return fmt.Errorf("%w: %s", err, &failure)
	}
	return nil
}

// countItems returns the number of items of a list. Incomplete JSON is an error.
func countItems(body io.Reader) (int, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

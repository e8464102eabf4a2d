package harness

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Etcd is an etcd server in a process of its own.
type Etcd struct {
	*Process
	Endpoint string
	args     []string
}

// StartEtcd starts an etcd, with further flags, and waits until it is healthy.
func StartEtcd(t testing.TB, flags ...string) *Etcd {
	t.Helper()
	e := &Etcd{
		Process:  NewProcess(t, "etcd", Binary(t, EtcdServer)),
		Endpoint: fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)),
	}
	peer := fmt.Sprintf("http://127.0.0.1:%d", FreePort(t))
	e.args = []string{
		"--name=e2e", "--data-dir=" + t.TempDir(), "--log-level=warn",
		"--listen-client-urls=" + e.Endpoint, "--advertise-client-urls=" + e.Endpoint,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=e2e=" + peer,
	}
	e.args = append(e.args, flags...)
	e.Start()
	return e
}

// Start runs it, again if it ran before, on the same data.
func (e *Etcd) Start() {
	e.t.Helper()
	e.Process.Start(e.args...)
	client := &http.Client{Timeout: 5 * time.Second}
	e.waitUntil("healthy", func() error { return expectOK(client, e.Endpoint+"/health") })
}

// StartOn runs it on other data, at the same address.
func (e *Etcd) StartOn(dir string) {
	e.t.Helper()
	e.args = append(e.args, "--data-dir="+dir) // the last one counts
	e.Start()
}

// Client returns a client, which is closed with the test.
func (e *Etcd) Client() *clientv3.Client {
	e.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = c.Close() })
	return c
}

func expectOK(c *http.Client, url string) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

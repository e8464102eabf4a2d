package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Etcd is an etcd server in its own process.
type Etcd struct {
	*Process
	Endpoint  string
	name      string
	peerURL   string
	healthURL string // base URL of the health endpoint
	tls       *tls.Config
	args      []string
}

// StartEtcd starts an etcd with further flags and waits until it is healthy.
func StartEtcd(t testing.TB, flags ...string) *Etcd {
	t.Helper()
	e := newEtcd(t, "e2e")
	e.args = append(e.args, "--initial-cluster="+e.name+"="+e.peerURL)
	e.args = append(e.args, flags...)
	e.Start()
	return e
}

// StartSecureEtcd starts an etcd with mutual TLS and waits until it is healthy. Both sides have
// certificates of pki. It returns the serving certificate.
func StartSecureEtcd(t testing.TB, pki *PKI) (etcd *Etcd, serving Pair) {
	t.Helper()
	etcd, serving = newEtcd(t, "e2e"), pki.Serving("etcd")
	client := pki.Client("etcd-e2e")
	pair, err := tls.X509KeyPair(client.Cert, client.Key)
	if err != nil {
		t.Fatal(err)
	}
	etcd.healthURL = fmt.Sprintf("http://127.0.0.1:%d", FreePort(t))
	etcd.Endpoint = strings.Replace(etcd.Endpoint, "http:", "https:", 1)
	// A test may let the serving certificate expire; the test's own client still connects.
	etcd.tls = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	etcd.args = append(etcd.args, "--initial-cluster="+etcd.name+"="+etcd.peerURL, "--listen-metrics-urls="+etcd.healthURL,
		"--listen-client-urls="+etcd.Endpoint, "--advertise-client-urls="+etcd.Endpoint,
		"--cert-file="+serving.CertFile, "--key-file="+serving.KeyFile, "--trusted-ca-file="+pki.CA, "--client-cert-auth")
	etcd.Start()
	return etcd, serving
}

// StartEtcdCluster starts a cluster of n members and waits until they are healthy. Member i keeps
// its data in folders[i], if there is one.
func StartEtcdCluster(t testing.TB, n int, folders ...string) []*Etcd {
	t.Helper()
	var members []*Etcd
	var initial []string
	for i := range n {
		e := newEtcd(t, fmt.Sprintf("e2e-%d", i))
		members, initial = append(members, e), append(initial, e.name+"="+e.peerURL)
		if i < len(folders) {
			e.args = append(e.args, "--data-dir="+folders[i])
		}
	}
	for _, e := range members {
		e.args = append(e.args, "--initial-cluster="+strings.Join(initial, ","))
	}
	StartTogether(members)
	return members
}

// StartTogether starts members that become healthy only together.
func StartTogether(members []*Etcd) {
	for _, e := range members {
		e.t.Helper()
		e.Process.Start(e.args...)
	}
	for _, e := range members {
		e.waitUntilHealthy()
	}
}

// Join adds a member with further flags to a cluster. The member starts as a learner and is
// promoted when it has caught up.
func Join(t testing.TB, members []*Etcd, flags ...string) *Etcd {
	t.Helper()
	client := EtcdClient(t, members)
	etcd := newEtcd(t, fmt.Sprintf("e2e-joined-%d", FreePort(t)))
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var added *clientv3.MemberAddResponse
	// etcd rejects membership changes until the members have been connected for seconds.
	Eventually(t, startTimeout, "a learner", func() (err error) {
		added, err = client.MemberAddAsLearner(ctx, []string{etcd.peerURL})
		return err
	})
	var initial []string
	for _, member := range added.Members {
		name := member.Name
		if member.ID == added.Member.ID {
			name = etcd.name
		}
		initial = append(initial, name+"="+member.PeerURLs[0])
	}
	etcd.args = append(etcd.args, "--initial-cluster-state=existing", "--initial-cluster="+strings.Join(initial, ","))
	etcd.args = append(etcd.args, flags...)
	etcd.Process.Start(etcd.args...)
	etcd.waitUntil("promoted", func() error {
		_, err := client.MemberPromote(ctx, added.Member.ID)
		return err
	})
	etcd.waitUntilHealthy()
	return etcd
}

// Leave removes a member from a cluster and kills it. The request goes to the other members because
// the member stops when it is removed.
func Leave(t testing.TB, leaving *Etcd, others []*Etcd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	status, err := leaving.Client().Status(ctx, leaving.Endpoint)
	if err != nil {
		t.Fatalf("status of an etcd member: %v", err)
	}
	client := EtcdClient(t, others)
	Eventually(t, startTimeout, "a member of etcd removed", func() error {
		_, err := client.MemberRemove(ctx, status.Header.MemberId)
		if errors.Is(err, rpctypes.ErrMemberNotFound) { // an earlier attempt succeeded without a response
			return nil
		}
		return err
	})
	leaving.Kill()
}

// newEtcd returns a member with its own ports and folder, which is not started yet.
func newEtcd(t testing.TB, name string) *Etcd {
	t.Helper()
	etcd := &Etcd{
		Process:  NewProcess(t, name, Binary(t, EtcdServer)),
		Endpoint: fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)),
		name:     name,
		peerURL:  fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)),
	}
	etcd.healthURL = etcd.Endpoint
	etcd.args = []string{
		"--name=" + name, "--data-dir=" + t.TempDir(), "--log-level=warn",
		"--listen-client-urls=" + etcd.Endpoint, "--advertise-client-urls=" + etcd.Endpoint,
		"--listen-peer-urls=" + etcd.peerURL, "--initial-advertise-peer-urls=" + etcd.peerURL,
	}
	return etcd
}

// Start starts or restarts the member on the same data.
func (e *Etcd) Start() {
	e.t.Helper()
	StartTogether([]*Etcd{e})
}

// waitUntilHealthy waits until the member reports that it is healthy.
func (e *Etcd) waitUntilHealthy() {
	e.t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	e.waitUntil("healthy", func() error { return expectOK(client, e.healthURL+"/health") })
}

// StartOn restarts the member on other data at the same address.
func (e *Etcd) StartOn(dir string) {
	e.t.Helper()
	e.args = append(e.args, "--data-dir="+dir) // the last value takes effect
	e.Start()
}

// Client returns a client, which is closed with the test.
func (e *Etcd) Client() *clientv3.Client {
	e.t.Helper()
	return EtcdClient(e.t, []*Etcd{e})
}

// EtcdClient returns a client of a cluster, which is closed with the test. It fails over from an
// unresponsive member within seconds.
func EtcdClient(t testing.TB, members []*Etcd) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, e := range members {
		endpoints = append(endpoints, e.Endpoint)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: members[0].tls, DialTimeout: 10 * time.Second,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// expectOK returns an error unless a GET of url returns 200.
func expectOK(client *http.Client, url string) error {
	resp, err := client.Get(url)
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

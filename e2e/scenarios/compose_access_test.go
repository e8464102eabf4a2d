package scenarios

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/e2e/harness"
)

// accessTimeout bounds the waits of the access tests.
const accessTimeout = 30 * time.Second

// clientTLSConfig returns a TLS configuration with a client certificate of a folder and the CA that
// the client trusts.
func clientTLSConfig(t *testing.T, certs, trust, pair string) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(certs, "ca", trust+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	config.RootCAs.AppendCertsFromPEM(pem)
	if pair == "" {
		return config
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(certs, pair+".crt"), filepath.Join(certs, pair+".key"))
	if err != nil {
		t.Fatal(err)
	}
	// The certificate is presented whatever CAs the server accepts.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	return config
}

// unauthorized holds certificates that neither etcd nor NATS accepts, by their holder.
var unauthorized = map[string]string{
	"a client without a certificate":  "",
	"the token cleaner":               "tokencleaner/tokencleaner-client",
	"a webhook's serving certificate": "authz-webhook/authz-webhook",
	"the administrator of the API":    "admin/admin",
	"the API server, to its webhooks": "apiserver/apiserver-webhook-client",
	"a front proxy":                   "front-proxy/front-proxy-client",
	"the API server, to kubelets":     "apiserver/apiserver-kubelet-client",
	"the API server, as front proxy":  "apiserver/apiserver-proxy-client",
}

// TestComposeEtcdServesOnlyAPIServers runs an etcd with the flags of compose and connects with
// every certificate of the suite.
func TestComposeEtcdServesOnlyAPIServers(t *testing.T) {
	t.Parallel()
	certs, _ := createCertificates(t)
	client, peer := fmt.Sprintf("https://127.0.0.1:%d", harness.FreePort(t)), fmt.Sprintf("https://127.0.0.1:%d",
		harness.FreePort(t))
	// A single member on other addresses. The flags for certificates are unchanged.
	args := map[string]string{
		"--name":                        "etcd-0",
		"--data-dir":                    t.TempDir(),
		"--initial-cluster":             "etcd-0=" + peer,
		"--initial-advertise-peer-urls": peer,
		"--listen-peer-urls":            peer, "--listen-client-urls": client, "--advertise-client-urls": client,
		"--listen-metrics-urls": fmt.Sprintf("http://127.0.0.1:%d", harness.FreePort(t)),
	}
	var flags []string
	for _, a := range readComposeFile(t).Services["etcd-0"].Command {
		name, value, ok := strings.Cut(a, "=")
		if other, given := args[name]; given {
			value = other
		}
		if !ok {
			flags = append(flags, name)
			continue
		}
		flags = append(flags, name+"="+strings.Replace(value, "/certs/", filepath.Join(certs, "etcd")+"/", 1))
	}
	harness.NewProcess(t, "etcd", harness.Binary(t, harness.EtcdServer)).Start(append(flags, "--log-level=warn")...)

	put := func(pair string) error {
		c, err := clientv3.New(clientv3.Config{
			Endpoints:   []string{client},
			DialTimeout: 2 * time.Second,
			TLS:         clientTLSConfig(t, certs, "etcd-ca", pair),
		})
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err = c.Put(ctx, "/registry/k", "v")
		return err
	}
	harness.Eventually(t, accessTimeout, "a write of the API server", func() error {
		return put("apiserver/apiserver-etcd-client")
	})
	if err := put("tokencleaner/tokencleaner-client"); err == nil {
		t.Error("write to etcd as the token cleaner: got no error, want one")
	}
	version := func(url, pair string) error {
		return checkStatusLine(strings.TrimPrefix(url, "https://"), clientTLSConfig(t, certs, "etcd-ca", pair),
			"GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n", "HTTP/1.1 200")
	}
	if err := version(client, "apiserver/apiserver-etcd-client"); err != nil {
		t.Error(err)
	}
	for identity, pair := range withIdentity(unauthorized, "the API server, to NATS", "apiserver/apiserver-nats-client") {
		if err := version(client, pair); err == nil {
			t.Errorf("etcd serves %s, want an error", identity)
		}
	}
	// A client is not a member, although etcd's CA signed its certificate.
	for pair, want := range map[string]bool{
		"etcd/etcd":                        true,
		"apiserver/apiserver-etcd-client":  false,
		"tokencleaner/tokencleaner-client": false,
	} {
		if err := version(peer, pair); (err == nil) != want {
			t.Errorf("as a member with %s: got %v, want success: %v", pair, err, want)
		}
	}
}

func withIdentity(m map[string]string, identity, pair string) map[string]string {
	out := map[string]string{identity: pair}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// checkStatusLine sends a request and checks the first line of the response.
func checkStatusLine(address string, c *tls.Config, request, want string) error {
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(accessTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, want) {
		return fmt.Errorf("got %q", line)
	}
	return nil
}

// natsClient implements the NATS protocol, so that the test controls each line.
type natsClient struct {
	net.Conn
	in *bufio.Reader
}

// dialNATS connects to a server with TLS; connect is the first line.
func dialNATS(address string, config *tls.Config, connect string) (*natsClient, error) {
	conn, err := net.DialTimeout("tcp", address, accessTimeout)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(accessTimeout)); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReaderSize(conn, 1).ReadString('\n'); err != nil {
		return nil, err
	}
	secure := tls.Client(conn, config)
	n := &natsClient{Conn: secure, in: bufio.NewReader(secure)}
	if err := n.send(connect, "PING"); err != nil {
		conn.Close()
		return nil, err
	}
	if line, err := n.readUntil("PONG", "-ERR"); err != nil || strings.HasPrefix(line, "-ERR") {
		conn.Close()
		return nil, fmt.Errorf("rejected: %s %w", line, err)
	}
	return n, nil
}

func (n *natsClient) send(lines ...string) error {
	_, err := n.Write([]byte(strings.Join(lines, "\r\n") + "\r\n"))
	return err
}

// readUntil returns the next line that starts with one of the words.
func (n *natsClient) readUntil(words ...string) (string, error) {
	for {
		line, err := n.in.ReadString('\n')
		if err != nil {
			return "", err
		}
		for _, w := range words {
			if strings.HasPrefix(line, w) {
				return strings.TrimSpace(line), nil
			}
		}
	}
}

// joinCluster connects as a member of the cluster.
func joinCluster(address string, c *tls.Config) error {
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(accessTimeout)); err != nil {
		return err
	}
	n := &natsClient{Conn: conn, in: bufio.NewReader(conn)}
	err = n.send(`CONNECT {"verbose":false,"tls_required":true,"name":"intruder","cluster":"binnacle"}`,
		`INFO {"server_id":"intruder","cluster":"binnacle","proto":1}`, "PING")
	if err != nil {
		return err
	}
	line, err := n.readUntil("PONG", "-ERR")
	if err == nil && strings.HasPrefix(line, "-ERR") {
		err = fmt.Errorf("rejected: %s", line)
	}
	return err
}

// TestComposeNATSServesOnlyAPIServers runs two NATS servers with the configuration of compose. API
// servers may publish and subscribe to subjects of their cluster only, other clients have no
// access, and no other port is open.
func TestComposeNATSServesOnlyAPIServers(t *testing.T) {
	t.Parallel()
	certs, _ := createCertificates(t)
	text, err := os.ReadFile(filepath.Join(harness.Project(t), "deploy", "compose", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	const n = 2
	first := harness.FreePorts(t, 2*n)
	clients, routes := make([]string, n), make([]string, n)
	for i := range n {
		clients[i], routes[i] = fmt.Sprintf("127.0.0.1:%d", first+i), fmt.Sprintf("127.0.0.1:%d", first+n+i)
	}
	for i := range n {
		conf := strings.NewReplacer("/certs/", filepath.Join(certs, "nats")+"/", "0.0.0.0:4222", clients[i],
			"0.0.0.0:6222", routes[i],
			"nats-0:6222", routes[0], "nats-1:6222", routes[1], `"tls://nats-2:6222"`, "").Replace(string(text))
		file := filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		process := harness.NewProcess(t, "nats-"+strconv.Itoa(i), harness.Binary(t, harness.NATSServer))
		process.Start("--config="+file, "--name=nats-"+strconv.Itoa(i))
		harness.Eventually(t, accessTimeout, "NATS to be ready", func() error {
			c, err := net.Dial("tcp", clients[i])
			if err == nil {
				err = c.Close()
			}
			return err
		})
		defer func() {
			if strings.Contains(process.Log(), "monitor") {
				t.Errorf("nats-%d: got a monitoring port, want none:\n%s", i, process.Log())
			}
		}()
	}

	const connect = `CONNECT {"verbose":false,"echo":false,"lang":"go","version":"1","protocol":1}`
	replicas := make([]*natsClient, n)
	for i := range n {
		if replicas[i], err = dialNATS(clients[i],
			clientTLSConfig(t, certs, "nats-ca", "apiserver/apiserver-nats-client"), connect); err != nil {
			t.Fatal(err)
		}
		defer replicas[i].Close()
		if err := replicas[i].send("SUB binnacle.binnacle.changes 1", "SUB binnacle.binnacle.ask 2"); err != nil {
			t.Fatal(err)
		}
	}
	// A message of one replica reaches the other through the route between the servers, once that
	// exists.
	received := make(chan error, 1)
	go func() {
		_, err := replicas[1].readUntil("MSG binnacle.binnacle.changes")
		received <- err
	}()
	harness.Eventually(t, accessTimeout, "a message through another server", func() error {
		if err := replicas[0].send("PUB binnacle.binnacle.changes 1", "x"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-received:
			return err
		default:
			return fmt.Errorf("no message yet")
		}
	})
	for _, command := range []string{"PUB binnacle.other.changes 1\r\nx", "PUB _INBOX.a 1\r\nx", "SUB > 3",
		"SUB binnacle.other.ask 4", "SUB $SYS.> 5"} {
		if err := replicas[0].send(command); err != nil {
			t.Fatal(err)
		}
		if line, err := replicas[0].readUntil("-ERR"); err != nil || !strings.Contains(line, "Permissions Violation") {
			t.Errorf("%s: got %s %v, want a Permissions Violation", command, line, err)
		}
	}
	unauthorized := withIdentity(unauthorized, "the API server, to etcd", "apiserver/apiserver-etcd-client")
	for identity, pair := range withIdentity(unauthorized, "a NATS server", "nats/nats") {
		if c, err := dialNATS(clients[0], clientTLSConfig(t, certs, "nats-ca", pair), connect); err == nil {
			c.Close()
			t.Errorf("connect to NATS as %s: got no error, want one", identity)
		}
	}
	// An API server is not a member, although NATS' CA signed its certificate.
	for pair, want := range map[string]bool{
		"nats/nats":                        true,
		"apiserver/apiserver-nats-client":  false,
		"tokencleaner/tokencleaner-client": false,
	} {
		if err := joinCluster(routes[0], clientTLSConfig(t, certs, "nats-ca", pair)); (err == nil) != want {
			t.Errorf("as a member with %s: got %v, want success: %v", pair, err, want)
		}
	}
}

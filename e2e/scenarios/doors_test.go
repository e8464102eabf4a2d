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

// doorPatience bounds what a test waits for at a door.
const doorPatience = 30 * time.Second

// credential is a client certificate of a folder, and what the test believes of
// the server.
func credential(t *testing.T, certs, trust, pair string) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(certs, "ca", trust+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	c.RootCAs.AppendCertsFromPEM(pem)
	if pair == "" {
		return c
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(certs, pair+".crt"), filepath.Join(certs, pair+".key"))
	if err != nil {
		t.Fatal(err)
	}
	// Presented whatever the server asks for.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	return c
}

// intruders are those whom neither etcd nor NATS may let in, and why they might.
var intruders = map[string]string{
	"nobody":                          "",
	"the token cleaner":               "tokencleaner/tokencleaner-client",
	"a webhook's serving certificate": "authz-webhook/authz-webhook",
	"the administrator of the API":    "admin/admin",
	"the API server, to its webhooks": "apiserver/apiserver-webhook-client",
	"a front proxy":                   "front-proxy/front-proxy-client",
	"the API server, to kubelets":     "apiserver/apiserver-kubelet-client",
	"the API server, as front proxy":  "apiserver/apiserver-proxy-client",
}

// TestEtcdOfComposeServesAPIServersAlone runs an etcd with the flags of compose and
// knocks with every certificate of the suite.
func TestEtcdOfComposeServesAPIServersAlone(t *testing.T) {
	t.Parallel()
	certs, _ := certificates(t)
	client, peer := fmt.Sprintf("https://127.0.0.1:%d", harness.FreePort(t)), fmt.Sprintf("https://127.0.0.1:%d", harness.FreePort(t))
	// A single member, on other addresses; all that is about certificates stays.
	args := map[string]string{
		"--name": "etcd-0", "--data-dir": t.TempDir(), "--initial-cluster": "etcd-0=" + peer, "--initial-advertise-peer-urls": peer,
		"--listen-peer-urls": peer, "--listen-client-urls": client, "--advertise-client-urls": client,
	}
	var flags []string
	for _, a := range composeFile(t).Services["etcd-0"].Command {
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
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{client}, DialTimeout: 2 * time.Second, TLS: credential(t, certs, "etcd-ca", pair)})
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err = c.Put(ctx, "/registry/k", "v")
		return err
	}
	harness.Eventually(t, doorPatience, "the API server writes", func() error { return put("apiserver/apiserver-etcd-client") })
	if err := put("tokencleaner/tokencleaner-client"); err == nil {
		t.Error("the token cleaner writes to etcd")
	}
	version := func(url, pair string) error {
		return answered(strings.TrimPrefix(url, "https://"), credential(t, certs, "etcd-ca", pair), "GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n", "HTTP/1.1 200")
	}
	if err := version(client, "apiserver/apiserver-etcd-client"); err != nil {
		t.Error(err)
	}
	for who, pair := range with(intruders, "the API server, to NATS", "apiserver/apiserver-nats-client") {
		if err := version(client, pair); err == nil {
			t.Errorf("etcd answers %s", who)
		}
	}
	// A client is no member, though etcd's CA has signed it.
	for pair, want := range map[string]bool{"etcd/etcd": true, "apiserver/apiserver-etcd-client": false, "tokencleaner/tokencleaner-client": false} {
		if err := version(peer, pair); (err == nil) != want {
			t.Errorf("as a member, with %s: %v", pair, err)
		}
	}
}

func with(m map[string]string, who, pair string) map[string]string {
	out := map[string]string{who: pair}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// answered connects, says something and looks at the first line of the answer.
func answered(address string, c *tls.Config, say, want string) error {
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(doorPatience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(say)); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, want) {
		return fmt.Errorf("it answers %q", line)
	}
	return nil
}

// natsClient speaks NATS' protocol, so that the test says exactly what it means.
type natsClient struct {
	net.Conn
	in *bufio.Reader
}

// dialNATS greets a server and goes over to TLS; connect is the first line.
func dialNATS(address string, c *tls.Config, connect string) (*natsClient, error) {
	conn, err := net.DialTimeout("tcp", address, doorPatience)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(doorPatience)); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReaderSize(conn, 1).ReadString('\n'); err != nil {
		return nil, err
	}
	secure := tls.Client(conn, c)
	n := &natsClient{Conn: secure, in: bufio.NewReader(secure)}
	if err := n.say(connect, "PING"); err != nil {
		conn.Close()
		return nil, err
	}
	if line, err := n.hear("PONG", "-ERR"); err != nil || strings.HasPrefix(line, "-ERR") {
		conn.Close()
		return nil, fmt.Errorf("refused: %s %w", line, err)
	}
	return n, nil
}

func (n *natsClient) say(lines ...string) error {
	_, err := n.Write([]byte(strings.Join(lines, "\r\n") + "\r\n"))
	return err
}

// hear waits for a line that begins with one of the words.
func (n *natsClient) hear(words ...string) (string, error) {
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

// join presents itself as a member of the cluster.
func join(address string, c *tls.Config) error {
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(doorPatience)); err != nil {
		return err
	}
	n := &natsClient{Conn: conn, in: bufio.NewReader(conn)}
	err = n.say(`CONNECT {"verbose":false,"tls_required":true,"name":"intruder","cluster":"binnacle"}`,
		`INFO {"server_id":"intruder","cluster":"binnacle","proto":1}`, "PING")
	if err != nil {
		return err
	}
	line, err := n.hear("PONG", "-ERR")
	if err == nil && strings.HasPrefix(line, "-ERR") {
		err = fmt.Errorf("refused: %s", line)
	}
	return err
}

// TestNATSOfComposeServesAPIServersAlone runs two NATS servers with the
// configuration of compose: API servers may say and hear what is their cluster's
// and nothing else, everybody else nothing, and no port is open beside.
func TestNATSOfComposeServesAPIServersAlone(t *testing.T) {
	t.Parallel()
	certs, _ := certificates(t)
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
		conf := strings.NewReplacer("/certs/", filepath.Join(certs, "nats")+"/", "0.0.0.0:4222", clients[i], "0.0.0.0:6222", routes[i],
			"nats-0:6222", routes[0], "nats-1:6222", routes[1], `"tls://nats-2:6222"`, "").Replace(string(text))
		file := filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		p := harness.NewProcess(t, "nats-"+strconv.Itoa(i), harness.Binary(t, harness.NATSServer))
		p.Start("--config="+file, "--name=nats-"+strconv.Itoa(i))
		harness.Eventually(t, doorPatience, "NATS", func() error {
			c, err := net.Dial("tcp", clients[i])
			if err == nil {
				err = c.Close()
			}
			return err
		})
		defer func() {
			if strings.Contains(p.Log(), "monitor") {
				t.Errorf("nats-%d monitors:\n%s", i, p.Log())
			}
		}()
	}

	const connect = `CONNECT {"verbose":false,"echo":false,"lang":"go","version":"1","protocol":1}`
	replicas := make([]*natsClient, n)
	for i := range n {
		if replicas[i], err = dialNATS(clients[i], credential(t, certs, "nats-ca", "apiserver/apiserver-nats-client"), connect); err != nil {
			t.Fatal(err)
		}
		defer replicas[i].Close()
		if err := replicas[i].say("SUB binnacle.binnacle.changes 1", "SUB binnacle.binnacle.ask 2"); err != nil {
			t.Fatal(err)
		}
	}
	// What one replica says arrives at the other, through the route between them,
	// once that is there.
	heard := make(chan error, 1)
	go func() {
		_, err := replicas[1].hear("MSG binnacle.binnacle.changes")
		heard <- err
	}()
	harness.Eventually(t, doorPatience, "a change arrives at another server", func() error {
		if err := replicas[0].say("PUB binnacle.binnacle.changes 1", "x"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-heard:
			return err
		default:
			return fmt.Errorf("not yet")
		}
	})
	for _, line := range []string{"PUB binnacle.other.changes 1\r\nx", "PUB _INBOX.a 1\r\nx", "SUB > 3", "SUB binnacle.other.ask 4", "SUB $SYS.> 5"} {
		if err := replicas[0].say(line); err != nil {
			t.Fatal(err)
		}
		if said, err := replicas[0].hear("-ERR"); err != nil || !strings.Contains(said, "Permissions Violation") {
			t.Errorf("%s: %s %v", line, said, err)
		}
	}
	intruders := with(intruders, "the API server, to etcd", "apiserver/apiserver-etcd-client")
	for who, pair := range with(intruders, "a member, which is no API server", "nats/nats") {
		if c, err := dialNATS(clients[0], credential(t, certs, "nats-ca", pair), connect); err == nil {
			c.Close()
			t.Errorf("NATS lets %s in", who)
		}
	}
	// An API server is no member, though NATS' CA has signed it.
	for pair, want := range map[string]bool{"nats/nats": true, "apiserver/apiserver-nats-client": false, "tokencleaner/tokencleaner-client": false} {
		if err := join(routes[0], credential(t, certs, "nats-ca", pair)); (err == nil) != want {
			t.Errorf("as a member, with %s: %v", pair, err)
		}
	}
}

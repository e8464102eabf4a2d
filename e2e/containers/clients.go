package containers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"binnacle/e2e/harness"
	"binnacle/e2e/robustness/traffic"
)

const dialTimeout = 2 * time.Second

// The Docker networks of the API servers and of etcd.
const (
	suiteNetwork = "suite"
	etcdNetwork  = "etcd"
)

// dialer returns a function that connects to a container by the name of its service on a Docker
// network.
func (c *composition) dialer(dockerNetwork string) func(ctx context.Context, _, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		service, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		ip, err := c.serviceAddress(ctx, service, dockerNetwork)
		if err != nil {
			return nil, err
		}
		dialer := net.Dialer{Timeout: dialTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(ip, port))
		if err != nil && ctx.Err() == nil {
			c.addresses.removeUnreachable(dockerNetwork+"/"+service, ip)
		}
		return conn, err
	}
}

// certificate returns the path of a file below the certificate folder.
func (c *composition) certificate(parts ...string) string {
	return filepath.Join(append([]string{c.state, "certs"}, parts...)...)
}

// clientConfig returns a client configuration for an API server, with the named certificate of
// the state folder unless certName is empty.
func (c *composition) clientConfig(service, certName string) *rest.Config {
	config := &rest.Config{Host: "https://" + service + ":6443", Dial: c.dialer(suiteNetwork), QPS: -1}
	config.CAFile = c.certificate("ca", "serving-ca.crt")
	if certName != "" {
		config.CertFile, config.KeyFile = c.certificate(certName+".crt"), c.certificate(certName+".key")
	}
	return config
}

// adminClient returns a client of an API server with the rights of an administrator.
func (c *composition) adminClient(service string) *kubernetes.Clientset {
	c.t.Helper()
	return harness.ClientFor(c.t, c.clientConfig(service, "admin/admin"))
}

// trafficReplica returns the clients of an API server for traffic.
func (c *composition) trafficReplica(service string) traffic.Replica {
	c.t.Helper()
	config := c.clientConfig(service, "admin/admin")
	client, err := metadata.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return traffic.Replica{
		JSON:     harness.ClientFor(c.t, config),
		Protobuf: harness.ClientFor(c.t, harness.Protobuf(config)),
		Metadata: client,
	}
}

// etcdClient returns an etcd client that authenticates with the certificate of the API servers.
func (c *composition) etcdClient() *clientv3.Client {
	c.t.Helper()
	pem, err := os.ReadFile(c.certificate("ca", "etcd-ca.crt"))
	if err != nil {
		c.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(c.certificate("apiserver", "apiserver-etcd-client.crt"),
		c.certificate("apiserver", "apiserver-etcd-client.key"))
	if err != nil {
		c.t.Fatal(err)
	}
	dial := c.dialer(etcdNetwork)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"https://etcd-0:2379", "https://etcd-1:2379", "https://etcd-2:2379"},
		TLS:         &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}},
		DialTimeout: dialTimeout, DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dial(ctx, "tcp", address)
		})},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

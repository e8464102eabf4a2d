package etcd_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// shortContext returns a context with a short timeout for calls that fail.
func shortContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestUnixSocketIsPrivate checks that only the current user can use the socket, and that Stop
// removes it.
func TestUnixSocketIsPrivate(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "etcd.sock")
	server, err := embedded.Start(t.Context(), embedded.Options{
		DataDir:      filepath.Join(dir, "data"),
		ListenClient: "unix://" + socket,
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got socket %v, %v, want mode 0600", info, err)
	}
	server.Stop()
	if _, err := os.Stat(socket); err == nil {
		t.Error("after Stop: got the socket, want it removed")
	}
}

// TestTLSListenerRequiresClientCertificate checks that clients without a certificate of the
// configured CA are rejected.
func TestTLSListenerRequiresClientCertificate(t *testing.T) {
	dir := t.TempDir()
	trusted := newAuthority(t)
	other := newAuthority(t)
	caFile := trusted.writeCertificate(t, dir, "ca")
	cert, key := trusted.issue(t, dir, "server")
	server, err := embedded.Start(t.Context(), embedded.Options{
		DataDir:      filepath.Join(dir, "data"),
		ListenClient: "https://127.0.0.1:0",
		CertFile:     cert,
		KeyFile:      key,
		ClientCAFile: caFile,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	ping := func(issuer *authority) error {
		o := etcd.DialOptions{Servers: []string{server.Endpoint()}, CAFile: caFile}
		if issuer != nil {
			o.CertFile, o.KeyFile = issuer.issue(t, dir, "client")
		}
		c, err := etcd.Dial(o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return etcdtest.NewStore(t, etcd.Config{Client: c}).Ping(shortContext(t))
	}
	if err := ping(trusted); err != nil {
		t.Error(err)
	}
	if ping(nil) == nil {
		t.Error("client without a certificate: got no error, want one")
	}
	if ping(other) == nil {
		t.Error("client with a certificate of another CA: got no error, want one")
	}
}

package etcd_test

import (
	"context"
	"log/slog"
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
	for _, prefix := range []string{"unix://", "unix:"} {
		t.Run(prefix, func(t *testing.T) {
			dir := t.TempDir()
			socket := filepath.Join(dir, "etcd.sock")
			server, err := embedded.Start(t.Context(), embedded.Options{
				DataDir:      filepath.Join(dir, "data"),
				ListenClient: prefix + socket,
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
		})
	}
}

// onRecord is a log handler that calls itself for each record.
type onRecord func()

func (onRecord) Enabled(context.Context, slog.Level) bool    { return true }
func (f onRecord) Handle(context.Context, slog.Record) error { f(); return nil }
func (f onRecord) WithAttrs([]slog.Attr) slog.Handler        { return f }
func (f onRecord) WithGroup(string) slog.Handler             { return f }

// TestUnixSocketIsPrivateBeforeStart checks that the socket has its mode before etcd opens its data. A
// start can take long, and clients can connect meanwhile.
func TestUnixSocketIsPrivateBeforeStart(t *testing.T) {
	dir := t.TempDir()
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "etcd.sock")
	if err := os.Mkdir(data, 0o755); err != nil { // etcd logs a warning when it opens the directory
		t.Fatal(err)
	}
	modes := make(chan os.FileMode, 1)
	server, err := embedded.Start(t.Context(), embedded.Options{
		DataDir:      data,
		ListenClient: "unix://" + socket,
		Logger: slog.New(onRecord(func() {
			var mode os.FileMode
			if info, err := os.Stat(socket); err == nil {
				mode = info.Mode().Perm()
			}
			select {
			case modes <- mode:
			default:
			}
		})),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	select {
	case mode := <-modes:
		if mode != 0o600 {
			t.Errorf("got socket mode %v, want 0600", mode)
		}
	default:
		t.Error("got no warning about the data directory, want one")
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

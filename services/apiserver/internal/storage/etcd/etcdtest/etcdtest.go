// Package etcdtest provides tests with a store on a real etcd.
package etcdtest

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
)

// ServersVariable is the environment variable with a comma-separated list of URLs of an etcd that
// tests may write to.
const ServersVariable = "BINNACLE_TEST_ETCD"

// PrivateServer starts an embedded server without a listener in a directory of the test, and stops it at the end of the test.
func PrivateServer(t testing.TB) *embedded.Server {
	t.Helper()
	return startServer(t, "")
}

// ListeningServer starts an embedded server that can be dialed at its Endpoint.
func ListeningServer(t testing.TB) *embedded.Server {
	t.Helper()
	return startServer(t, "http://127.0.0.1:0")
}

// startServer starts an embedded server that listens at a URL, or is private if the URL is empty.
func startServer(t testing.TB, listen string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(context.Background(), embedded.Options{
		DataDir:      t.TempDir(),
		ListenClient: listen,
		Logger:       Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

// Embedded opens a store on a new, empty embedded server.
func Embedded(t testing.TB) *etcd.Store {
	t.Helper()
	return NewStore(t, PrivateServer(t).Config())
}

// NewStore opens a store.
func NewStore(t testing.TB, cfg etcd.Config) *etcd.Store {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = Logger(t)
	}
	s, err := etcd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// OpenExternalEmptied opens a store on the etcd of ServersVariable, after emptying it, or skips the test.
func OpenExternalEmptied(t testing.TB) *etcd.Store {
	t.Helper()
	servers := os.Getenv(ServersVariable)
	if servers == "" {
		t.Skip(ServersVariable + " is not set")
	}
	return OpenEmptied(t, strings.Split(servers, ",")...)
}

// OpenEmptied opens a store on servers, after emptying them.
func OpenEmptied(t testing.TB, servers ...string) *etcd.Store {
	t.Helper()
	client, err := etcd.Dial(etcd.DialOptions{Servers: servers, Logger: Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if _, err := client.Delete(context.Background(), "\x00", clientv3.WithFromKey()); err != nil {
		t.Fatal(err)
	}
	return NewStore(t, etcd.Config{Client: client})
}

// Logger writes to the test's log.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

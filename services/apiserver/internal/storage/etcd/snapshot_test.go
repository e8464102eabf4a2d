package etcd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

func TestSnapshotWhileItRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "etcd.sock")
	server, err := embedded.Start(t.Context(), embedded.Options{DataDir: filepath.Join(dir, "data"), ListenClient: socket, Logger: etcdtest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	store := etcdtest.Store(t, server.Config())
	for i := range 100 {
		if _, err := store.Create(t.Context(), fmt.Sprintf("/registry/pods/p%d", i), []byte(strings.Repeat("v", 5000)), storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{socket}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	path := filepath.Join(dir, "snapshot.db")
	size, err := etcd.SaveSnapshot(t.Context(), client, path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != size || info.Mode().Perm() != 0o600 || size < 500_000 {
		t.Errorf("%d bytes, %v, %v", size, info, err)
	}
	if _, err := etcd.SaveSnapshot(t.Context(), client, path); err == nil {
		t.Error("a snapshot is overwritten")
	}
	// An end in the middle leaves nothing.
	proxy := etcdtest.NewProxy(t, etcdtest.Listening(t).Endpoint())
	cut, err := etcd.Dial(etcd.DialOptions{Servers: []string{proxy.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	proxy.Cut()
	if _, err := etcd.SaveSnapshot(expiring(t), cut, filepath.Join(dir, "cut.db")); err == nil {
		t.Error("a snapshot of nobody is saved")
	}
	if files, err := filepath.Glob(filepath.Join(dir, "cut*")); err != nil || len(files) > 0 {
		t.Errorf("left: %v, %v", files, err)
	}
}

// expiring is a context for what does not succeed.
func expiring(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestTheListenerIsForThisUserAlone(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "etcd.sock")
	server, err := embedded.Start(t.Context(), embedded.Options{DataDir: filepath.Join(dir, "data"), ListenClient: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	server.Stop()
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket outlives the server")
	}
}

func TestAListenerWithTLSAsksForACertificate(t *testing.T) {
	dir := t.TempDir()
	a, other := newAuthority(t), newAuthority(t)
	ca := a.write(t, dir, "ca")
	cert, key := a.issue(t, dir, "server")
	server, err := embedded.Start(t.Context(), embedded.Options{
		DataDir: filepath.Join(dir, "data"), ListenClient: "https://127.0.0.1:0", CertFile: cert, KeyFile: key, ClientCAFile: ca,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	ping := func(issuer *authority) error {
		o := etcd.DialOptions{Servers: []string{server.Endpoint()}, CAFile: ca}
		if issuer != nil {
			o.CertFile, o.KeyFile = issuer.issue(t, dir, "client")
		}
		c, err := etcd.Dial(o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return etcdtest.Store(t, etcd.Config{Client: c}).Ping(expiring(t))
	}
	if err := ping(a); err != nil {
		t.Error(err)
	}
	if ping(nil) == nil || ping(other) == nil {
		t.Error("somebody without a certificate of the CA is let in")
	}
}

package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/etcd/embedded/snapshot"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "/registry/pods/p"

// startEtcd runs an embedded etcd on a folder, with a socket for clients.
func startEtcd(t *testing.T, data string) (server *embedded.Server, socket string) {
	t.Helper()
	socket = "unix://" + filepath.Join(t.TempDir(), "etcd.sock")
	server, err := embedded.Start(t.Context(), embedded.Options{DataDir: data, ListenClient: socket, Logger: etcdtest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return server, socket
}

func saveSnapshot(t *testing.T, endpoint, path string) (int64, error) {
	t.Helper()
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return snapshot.Save(t.Context(), snapshot.SaveOptions{Endpoint: endpoint, Client: client, Path: path})
}

// TestSnapshotSavedFromRunningEtcdIsRestored checks that a restored member has the values of the
// snapshot, at revisions that clients have not seen.
func TestSnapshotSavedFromRunningEtcdIsRestored(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	path := filepath.Join(dir, "snapshot.db")
	server, socket := startEtcd(t, data)
	store := etcdtest.NewStore(t, server.Config())
	for i := range 100 {
		if _, err := store.Create(t.Context(), fmt.Sprintf("%s%d", key, i),
			[]byte(strings.Repeat("v", 5000)), storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	size, err := saveSnapshot(t, socket, path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != size || info.Mode().Perm() != 0o600 || size < 500_000 {
		t.Errorf("saved %d bytes, file %v, %v, want a private file of at least 500,000 bytes", size, info, err)
	}
	if _, err := saveSnapshot(t, socket, path); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("second snapshot with the same name: got %v, want an error: it exists", err)
	}
	server.Stop()

	for name, from := range map[string]string{"snapshot": path, "data folder": data} {
		t.Run(name, func(t *testing.T) {
			saved, err := snapshot.Status(from)
			if err != nil || saved.Keys < 100 || saved.Revision < 101 || saved.Bytes < 500_000 {
				t.Errorf("status = %+v, %v, want at least 100 keys, revision 101 and 500,000 bytes", saved, err)
			}
			restored := filepath.Join(t.TempDir(), "restored")
			options := snapshot.RestoreOptions{From: from, DataDir: restored, RevisionBump: snapshot.DefaultRevisionBump}
			if err := snapshot.Restore(options); err != nil {
				t.Fatal(err)
			}
			if err := snapshot.Restore(options); err == nil || !strings.Contains(err.Error(), "already exists") {
				t.Errorf("second restoration: got %v, want an error: the folder exists", err)
			}
			started, _ := startEtcd(t, restored)
			defer started.Stop()
			revision, err := etcdtest.NewStore(t, started.Config()).Create(t.Context(), "/registry/pods/new", []byte("v"), storage.WriteOptions{})
			if err != nil || revision <= saved.Revision+snapshot.DefaultRevisionBump {
				t.Errorf("write after a restoration: got revision %d, %v, want one after %d",
					revision, err, saved.Revision+snapshot.DefaultRevisionBump)
			}
			if _, err := etcdtest.NewStore(t, started.Config()).Create(t.Context(), key+"7", []byte("v"), storage.WriteOptions{}); err == nil {
				t.Error("create of a saved key: got no error, want one: the key exists")
			}
		})
	}
}

// TestSaveFailsWithoutEtcd checks that Save names the unreachable endpoint and leaves no file.
func TestSaveFailsWithoutEtcd(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "none.sock")
	_, err := saveSnapshot(t, "unix://"+socket, filepath.Join(dir, "snapshot.db"))
	if err == nil || !strings.Contains(err.Error(), "unix://"+socket) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got error %v, want one that names unix://%s and its cause", err, socket)
	}
	proxy := etcdtest.NewProxy(t, etcdtest.ListeningServer(t).Endpoint())
	proxy.Cut()
	if _, err := saveSnapshot(t, proxy.Endpoint(), filepath.Join(dir, "snapshot.db")); err == nil {
		t.Error("Save over a cut connection: got no error, want one")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("after a failed Save: got files %v, %v, want none", files, err)
	}
}

// TestIncompleteSnapshotIsRejected checks that Status and Restore reject incomplete and changed files.
func TestIncompleteSnapshotIsRejected(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot.db")
	server, socket := startEtcd(t, filepath.Join(dir, "data"))
	_, err := saveSnapshot(t, socket, path)
	server.Stop()
	if err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(saved)
	changed[len(changed)/2] ^= 1
	for name, content := range map[string][]byte{
		"text": []byte("no database"), "empty": nil, "first half": saved[:len(saved)/2], "first pages": saved[:8192], "changed": changed,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		const want = "the snapshot is incomplete"
		if _, err := snapshot.Status(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Status = %v, want an error with %q", name, err, want)
		}
		restored := filepath.Join(dir, "restored")
		err = snapshot.Restore(snapshot.RestoreOptions{From: path, DataDir: restored})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Restore = %v, want an error with %q", name, err, want)
		}
		if _, err := os.Stat(restored); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: Restore created its folder: %v, want %v", name, err, os.ErrNotExist)
		}
	}
}

// TestBackupKeepsNewestAndRemovesOlder checks that a backup removes older ones and the rest of a failed
// one, that it keeps other files, and that a failed backup removes nothing.
func TestBackupKeepsNewestAndRemovesOlder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"etcd-20240101T000000Z.db", "etcd-20240102T000000Z.db", "etcd-20240103T000000Z.db",
		"etcd-20240104T000000Z.db.part", "etcd-mine.db", "notes",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := snapshot.SaveCommand{Endpoint: "unix://" + filepath.Join(dir, "none.sock"), ToDir: dir, Keep: 2, Timeout: time.Minute}
	fileNames := func() (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	before := fileNames()
	if err := command.Run(t.Context(), etcdtest.Logger(t)); err == nil || !slices.Equal(fileNames(), before) {
		t.Errorf("without etcd: got error %v, files %v, want an error and %v", err, fileNames(), before)
	}
	server, socket := startEtcd(t, filepath.Join(t.TempDir(), "data"))
	defer server.Stop()
	command.Endpoint = socket
	if err := command.Run(t.Context(), etcdtest.Logger(t)); err != nil {
		t.Fatal(err)
	}
	got := fileNames()
	if len(got) != 4 || got[0] != "etcd-20240103T000000Z.db" || !slices.Equal(got[2:], []string{"etcd-mine.db", "notes"}) {
		t.Fatalf("files after the backups = %v, want etcd-20240103T000000Z.db, a newer backup, etcd-mine.db and notes", got)
	}
	if _, err := snapshot.Status(filepath.Join(dir, got[1])); err != nil {
		t.Error(err)
	}
	command.ToDir = filepath.Join(t.TempDir(), "new", "backups")
	if err := command.Run(t.Context(), etcdtest.Logger(t)); err != nil {
		t.Errorf("folder that does not exist: got %v", err)
	}
}

package scenarios

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/e2e/harness"
)

// TestBackupAndRestore saves an etcd in use, restores it into a new etcd as docs/user/backup.md
// describes, and runs a new API server on it.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	server := harness.StartServer(t, harness.WithEtcd(etcd))
	client := server.Client()
	maps := client.CoreV1().ConfigMaps("default")
	before, err := maps.Create(t.Context(), configMap("before", "1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := saveSnapshot(t, etcd.Client())
	after, err := maps.Create(t.Context(), configMap("after", "1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	etcd.Kill()

	data := filepath.Join(t.TempDir(), "restored")
	const peer = "http://127.0.0.1:1" // a single member connects to no peer
	runRestore(t, "--from="+file, "--data-dir="+data, "--name=e2e", "--initial-cluster=e2e="+peer,
		"--initial-cluster-token=restored", "--initial-advertise-peer-urls="+peer)
	again := harness.StartServer(t, harness.WithEtcd(harness.StartEtcd(t, "--data-dir="+data)))
	maps = again.Client().CoreV1().ConfigMaps("default")
	got, err := maps.Get(t.Context(), "before", metav1.GetOptions{})
	if err != nil || got.UID != before.UID || got.Data["value"] != "1" {
		t.Errorf("saved object: got %v, %v, want UID %s and value 1", got, err, before.UID)
	}
	if _, err := maps.Get(t.Context(), "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of an object written after the backup: got %v, want NotFound", err)
	}
	got.Data["value"] = "2"
	changed, err := maps.Update(t.Context(), got, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if parseRevision(t, changed.ResourceVersion) <= parseRevision(t, after.ResourceVersion) {
		t.Errorf("first write after the restore: got version %s, want more than %s", changed.ResourceVersion, after.ResourceVersion)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: after.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("watch from before the restore: got %v, want an error Expired", e)
	}
	if list, err := again.Client().CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil ||
		len(list.Items) != 4 {
		t.Errorf("got %d namespaces, %v, want 4", len(list.Items), err)
	}
}

// TestSnapshotOfEmbeddedEtcd saves the embedded etcd of an API server during writes, with the
// command and with etcd's client. It restores the snapshots as docs/user/backup.md describes and
// runs an API server on each.
func TestSnapshotOfEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "etcd.sock")
	server := harness.StartServer(t, harness.WithFlags("--embedded-etcd-listen-client-url="+socket))
	maps := server.Client().CoreV1().ConfigMaps("default")
	before, err := maps.Create(t.Context(), configMap("before", "1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := maps.Create(t.Context(), configMap(fmt.Sprintf("load-%d", i), "1"), metav1.CreateOptions{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	file := filepath.Join(dir, "snapshot.db")
	out, err := exec.CommandContext(t.Context(), harness.Binary(t, harness.APIServer), "snapshot", "save",
		"--endpoint="+socket, "--to="+file).CombinedOutput()
	cancel()
	writing.Wait()
	if err != nil || !strings.Contains(string(out), "saved a snapshot") {
		t.Fatalf("got output %s, %v, want a saved snapshot", out, err)
	}
	stock, err := clientv3.New(clientv3.Config{Endpoints: []string{socket}})
	if err != nil {
		t.Fatal(err)
	}
	defer stock.Close()
	if status, err := stock.Status(t.Context(), socket); err != nil || status.DbSizeQuota != 8<<30 {
		t.Errorf("got %v, %v, want a quota of %d bytes", status, err, 8<<30)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}

	data := filepath.Join(dir, "restored")
	runRestore(t, "--from="+file, "--data-dir="+data)
	again := harness.StartServer(t, harness.WithFlags("--data-dir="+data))
	maps = again.Client().CoreV1().ConfigMaps("default")
	got, err := maps.Get(t.Context(), "before", metav1.GetOptions{})
	if err != nil || got.UID != before.UID {
		t.Errorf("saved object: got %v, %v, want UID %s", got, err, before.UID)
	}
	got.Data["value"] = "2"
	if changed, err := maps.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil ||
		parseRevision(t, changed.ResourceVersion) < 1_000_000_000 {
		t.Errorf("got %v, %v, want no error, revision(t, changed.ResourceVersion) at least 1_000_000_000", changed, err)
	}
}

// runRestore runs the command that creates a data folder from a snapshot.
func runRestore(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), harness.Binary(t, harness.APIServer),
		append([]string{"snapshot", "restore"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// saveSnapshot writes the content of etcd to a file.
func saveSnapshot(t *testing.T, c *clientv3.Client) string {
	t.Helper()
	readCloser, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer readCloser.Close()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, readCloser); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

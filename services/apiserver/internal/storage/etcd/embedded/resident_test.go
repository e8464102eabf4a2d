package embedded

import (
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestResidentSizeCoversReadPages checks that the resident size covers the pages of the database
// that were read, and nothing else.
func TestResidentSizeCoversReadPages(t *testing.T) {
	if _, err := os.Stat("/proc/self/smaps"); err != nil {
		t.Skip("no /proc/self/smaps")
	}
	dir := t.TempDir()
	server, _, _ := startWithQuota(t, dir, 64<<20)
	defer server.Stop()
	const objects, objectBytes = 40, 50 << 10
	for i := range objects {
		if _, err := server.client.Put(t.Context(), objectKey(i), randomText(objectBytes)); err != nil {
			t.Fatal(err)
		}
	}
	server.member.server.KV().Commit()
	if resp, err := server.client.Get(t.Context(), "/registry/", clientv3.WithPrefix()); err != nil || len(resp.Kvs) != objects {
		t.Fatalf("Get = %v, %v, want %d keys", resp, err, objects)
	}
	if got, size := residentFile(dir), server.member.server.Backend().Size(); got < objects*objectBytes || got > size {
		t.Errorf("got %d resident bytes of a file of %d, want at least the %d that were read", got, size, objects*objectBytes)
	}
	if got := residentFile(t.TempDir()); got != 0 {
		t.Errorf("missing file: got %d resident bytes, want 0", got)
	}
}

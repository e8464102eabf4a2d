package embedded

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestWritesAreRejectedBeforeDiskIsFull checks that an almost full disk leaves reads and
// deletions, and that writes continue when there is room again.
func TestWritesAreRejectedBeforeDiskIsFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	server, err := Start(t.Context(), Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	free := int64(1 << 30)
	maintained := &maintenance{server: server, log: slog.New(slog.DiscardHandler), space: func(string) (int64, int64) { return 1 << 40, free }}
	reserved := func() bool {
		info, err := os.Stat(filepath.Join(dir, reserveName))
		return err == nil && info.Size() == reserveBytes
	}
	if err := errors.Join(maintained.checkDisk(t.Context()), maintained.reserveSpace(t.Context())); err != nil || !reserved() {
		t.Fatalf("enough space: got error %v, reserved %v, want no error and reserved space", err, reserved())
	}
	if _, err := server.client.Put(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	free = scarceBytes - 1
	for range 2 { // the second check has no more to do
		if err := errors.Join(maintained.checkDisk(t.Context()), maintained.runDueTasks(t.Context()), maintained.reserveSpace(t.Context())); err != nil || reserved() {
			t.Errorf("almost full: got error %v, reserved %v, want no error and no reserved space", err, reserved())
		}
		free = reserveBytes + ampleBytes // not enough room for the reserve, too
	}
	if _, err := server.client.Put(t.Context(), "a", "c"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("write on an almost full disk: got %v, want %v", err, rpctypes.ErrNoSpace)
	}
	if got, err := server.client.Get(t.Context(), "a"); err != nil || string(got.Kvs[0].Value) != "b" {
		t.Errorf("read on an almost full disk: got %v, %v, want b", got, err)
	}
	if _, err := server.client.Delete(t.Context(), "a"); err != nil {
		t.Errorf("deletion on an almost full disk: got %v, want no error", err)
	}
	free = reserveBytes + ampleBytes + 1
	if err := maintained.checkDisk(t.Context()); err != nil || !reserved() {
		t.Errorf("space again: got error %v, reserved %v, want no error and reserved space", err, reserved())
	}
	if _, err := server.client.Put(t.Context(), "a", "c"); err != nil {
		t.Error(err)
	}
}

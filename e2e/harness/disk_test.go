package harness_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"binnacle/e2e/harness"
)

// TestFullDiskRejectsWrites checks that a full disk rejects writes and new files, and accepts them
// when it is freed.
func TestFullDiskRejectsWrites(t *testing.T) {
	disk, err := harness.StartDisk(t)
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(disk.Dir, "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(want error) {
		t.Helper()
		if _, err := file.WriteString("text"); !errors.Is(err, want) {
			t.Errorf("write: got %v, want %v", err, want)
		}
		if err := file.Sync(); err != nil {
			t.Errorf("sync: %v", err)
		}
	}
	write(nil)
	disk.Fill(true)
	write(syscall.ENOSPC)
	if _, err := os.Create(path + "2"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("create: got %v, want ENOSPC", err)
	}
	disk.Fill(false)
	write(nil)
	if content, err := os.ReadFile(path); err != nil || string(content) != "texttext" {
		t.Errorf("read: got %q, %v, want texttext", content, err)
	}
}

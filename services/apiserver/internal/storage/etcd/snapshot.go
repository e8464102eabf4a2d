package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// snapshotPage is the size of the pages that a database consists of; what is behind
// the last whole one is the checksum.
const snapshotPage = 512

// SaveSnapshot writes all that a running etcd holds to a file that does not exist
// yet, in the form of `etcdctl snapshot save`, and returns its size in bytes. A file
// of that name is a whole snapshot: it is checked before it gets the name.
func SaveSnapshot(ctx context.Context, client *clientv3.Client, path string) (size int64, err error) {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("snapshot: %s is there already", path)
	}
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part)
		}
	}()
	size, err = copySnapshot(ctx, client, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	return size, nil
}

func copySnapshot(ctx context.Context, client *clientv3.Client, to *os.File) (int64, error) {
	from, err := client.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	sum := &trailing{hash: sha256.New()}
	size, err := io.Copy(io.MultiWriter(to, sum), from)
	if err != nil {
		return 0, err
	}
	if size%snapshotPage != sha256.Size || !bytes.Equal(sum.hash.Sum(nil), sum.last) {
		return 0, errors.New("what came is not whole: the checksum differs")
	}
	return size, to.Sync()
}

// trailing hashes all but the checksum at the end of what is written to it.
type trailing struct {
	hash hash.Hash
	last []byte // at most sha256.Size bytes
}

func (t *trailing) Write(p []byte) (int, error) {
	t.last = append(t.last, p...)
	if n := len(t.last) - sha256.Size; n > 0 {
		t.hash.Write(t.last[:n])
		t.last = append(t.last[:0], t.last[n:]...)
	}
	return len(p), nil
}

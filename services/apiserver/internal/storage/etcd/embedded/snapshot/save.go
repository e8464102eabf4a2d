package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
)

// diskSector divides the size of a database file. A snapshot has a SHA-256 checksum of
// the database after its last sector.
const diskSector = 512

// connectTimeout is how long Save waits for a response of the server before it copies.
const connectTimeout = 5 * time.Second

// partialSuffix is appended to the name of a file until it is complete.
const partialSuffix = ".part"

// progressInterval is the time between two calls of SaveOptions.Progress.
const progressInterval = 2 * time.Second

// SaveOptions describe a snapshot to save.
type SaveOptions struct {
	// Endpoint is the URL of the member, which Client is connected to.
	Endpoint string
	Client   *clientv3.Client
	// Path is the file to write. It must not exist.
	Path string
	// Progress reports the bytes that were copied, and the size of the database in
	// bytes, every two seconds. It may be nil.
	Progress func(copied, size int64)
}

// Save writes the content of a running member to a file and returns the size of the
// file in bytes. It returns an error within five seconds if the member does not respond.
// The file appears under its name only after its checksum was verified.
func Save(ctx context.Context, saveOptions SaveOptions) (size int64, err error) {
	if _, err := os.Stat(saveOptions.Path); !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("save snapshot: %s already exists", saveOptions.Path)
	}
	database, err := saveOptions.databaseSize(ctx)
	if err != nil {
		return 0, fmt.Errorf("save snapshot: etcd at %s does not answer: %w", saveOptions.Endpoint, err)
	}
	part := saveOptions.Path + partialSuffix
	f, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("save snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part)
		}
	}()
	size, err = saveOptions.copyTo(ctx, f, database)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("save snapshot: %w", err)
	}
	if err := os.Rename(part, saveOptions.Path); err != nil {
		return 0, fmt.Errorf("save snapshot: %w", err)
	}
	return size, nil
}

// databaseSize returns the size of the member's database in bytes.
func (o *SaveOptions) databaseSize(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	// The wrapper of the client retries until the deadline and loses the reason. A direct
	// call fails as soon as a connection cannot be made.
	response, err := pb.NewMaintenanceClient(o.Client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return 0, errors.New(status.Convert(err).Message())
	}
	return response.DbSize, nil
}

// copyTo copies a snapshot of the server to a file and verifies its checksum. It returns the size
// in bytes.
func (o *SaveOptions) copyTo(ctx context.Context, file *os.File, database int64) (int64, error) {
	from, err := o.Client.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	sum := &trailingChecksum{hash: sha256.New()}
	progress := &progressWriter{report: o.Progress, size: database, last: time.Now()}
	size, err := io.Copy(io.MultiWriter(file, sum, progress), from)
	if err != nil {
		return 0, err
	}
	if err := sum.verify(size); err != nil {
		return 0, err
	}
	return size, file.Sync()
}

// trailingChecksum hashes everything that is written to it, except for the last
// sha256.Size bytes.
type trailingChecksum struct {
	hash hash.Hash
	last []byte // at most sha256.Size bytes
}

// Write implements io.Writer.
func (t *trailingChecksum) Write(p []byte) (int, error) {
	t.last = append(t.last, p...)
	if n := len(t.last) - sha256.Size; n > 0 {
		t.hash.Write(t.last[:n])
		t.last = append(t.last[:0], t.last[n:]...)
	}
	return len(p), nil
}

// verify returns an error unless the size bytes that were written are a database and its checksum.
func (t *trailingChecksum) verify(size int64) error {
	if size%diskSector != sha256.Size || !bytes.Equal(t.hash.Sum(nil), t.last) {
		return errors.New("the snapshot is incomplete: its checksum does not match")
	}
	return nil
}

// progressWriter reports the number of bytes that were written to it.
type progressWriter struct {
	report       func(copied, size int64)
	copied, size int64
	last         time.Time // of the last report
}

// Write implements io.Writer.
func (w *progressWriter) Write(p []byte) (int, error) {
	w.copied += int64(len(p))
	if w.report != nil && time.Since(w.last) >= progressInterval {
		w.last = time.Now()
		w.report(w.copied, w.size)
	}
	return len(p), nil
}

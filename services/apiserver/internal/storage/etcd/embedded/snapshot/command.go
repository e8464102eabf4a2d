package snapshot

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"binnacle/services/apiserver/internal/storage/etcd"
)

// SaveCommand saves the content of a running etcd to a file.
type SaveCommand struct {
	Endpoint                  string
	CAFile, CertFile, KeyFile string
	// To is the file to write. If it is empty, ToDir is the folder of backups, which is created if
	// it does not exist. The newest Keep backups remain.
	To, ToDir string
	Keep      int
	Timeout   time.Duration
}

// Run saves the snapshot.
func (c *SaveCommand) Run(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	client, err := etcd.Dial(etcd.DialOptions{
		Servers:  []string{c.Endpoint},
		CAFile:   c.CAFile,
		CertFile: c.CertFile,
		KeyFile:  c.KeyFile,
		Logger:   log,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	start := time.Now()
	path := c.To
	if path == "" {
		if err := os.MkdirAll(c.ToDir, 0o700); err != nil {
			return fmt.Errorf("save snapshot: %w", err)
		}
		path = filepath.Join(c.ToDir, backupPrefix+start.UTC().Format(backupTime)+backupSuffix)
	}
	size, err := Save(ctx, SaveOptions{
		Endpoint: c.Endpoint,
		Client:   client,
		Path:     path,
		Progress: func(copied, size int64) {
			log.Info("saving a snapshot", "bytes", copied, "databaseBytes", size)
		},
	})
	if err != nil {
		return err
	}
	log.Info("saved a snapshot", "file", path, "bytes", size, "duration", time.Since(start))
	if c.To != "" {
		return nil
	}
	// Older backups are removed only after a new one is complete.
	removed, err := removeOldBackups(c.ToDir, c.Keep)
	if len(removed) > 0 {
		log.Info("removed old snapshots", "dir", c.ToDir, "files", removed)
	}
	if err != nil {
		return fmt.Errorf("remove old snapshots: %w", err)
	}
	return nil
}

// RestoreCommand creates the data folder of an etcd member from a snapshot.
type RestoreCommand struct{ RestoreOptions }

// Run restores the snapshot.
func (c *RestoreCommand) Run(_ context.Context, log *slog.Logger) error {
	if err := Restore(c.RestoreOptions); err != nil {
		return err
	}
	log.Info("restored a snapshot", "file", c.From, "dataDir", c.DataDir)
	return nil
}

// StatusCommand verifies a snapshot and prints its state.
type StatusCommand struct {
	From   string
	Output io.Writer
}

// Run prints the state of the snapshot.
func (c *StatusCommand) Run(context.Context, *slog.Logger) error {
	state, err := Status(c.From)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Output, "revision  %d\nkeys      %d\nbytes     %d\nhash      %x\nversion   %s\n",
		state.Revision, state.Keys, state.Bytes, state.Hash, state.Version)
	return err
}

package snapshot

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Member of the etcd that is embedded in an API server.
const (
	embeddedName = "binnacle"
	embeddedPeer = "http://localhost:2380"
)

// DefaultRevisionBump is larger than the number of writes between a snapshot and its
// restoration.
const DefaultRevisionBump = 1_000_000_000

// RestoreOptions describe a data folder to create. Without a name and a cluster it is the folder of
// the etcd embedded in an API server.
type RestoreOptions struct {
	// From is a snapshot file, or the data folder of a stopped etcd.
	From string
	// DataDir is the folder to create. It must not exist.
	DataDir string
	// Name, InitialCluster, InitialClusterToken and PeerURLs describe the member, like etcd's flags
	// of these names.
	Name, InitialCluster, InitialClusterToken string
	PeerURLs                                  []string
	// RevisionBump is added to the revision. Every revision up to the result is marked as
	// compacted, so that clients list again. Zero keeps the revision.
	RevisionBump uint64
}

// Restore creates the data folder of a member from a snapshot.
func Restore(restoreOptions RestoreOptions) error {
	if _, err := os.Stat(restoreOptions.DataDir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("restore snapshot: %s already exists", restoreOptions.DataDir)
	}
	from, err := databaseFile(restoreOptions.From)
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	peers := restoreOptions.PeerURLs
	if len(peers) == 0 {
		peers = []string{embeddedPeer}
	}
	name := cmp.Or(restoreOptions.Name, embeddedName)
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath:        from.path,
		SkipHashCheck:       !from.snapshot,
		OutputDataDir:       restoreOptions.DataDir,
		Name:                name,
		PeerURLs:            peers,
		InitialCluster:      cmp.Or(restoreOptions.InitialCluster, name+"="+peers[0]),
		InitialClusterToken: cmp.Or(restoreOptions.InitialClusterToken, "etcd-cluster"),
		RevisionBump:        restoreOptions.RevisionBump,
		MarkCompacted:       restoreOptions.RevisionBump > 0,
	})
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	return nil
}

// databaseSource is the database file of a snapshot or of a data folder.
type databaseSource struct {
	path     string
	snapshot bool // the file ends with a checksum
}

// databaseFile returns the source for a snapshot file, whose checksum it verifies, or a data
// folder. The readers of etcd panic if a part of the file is missing.
func databaseFile(path string) (databaseSource, error) {
	info, err := os.Stat(path)
	if err != nil {
		return databaseSource{}, err
	}
	if info.IsDir() {
		path = filepath.Join(path, "member", "snap", "db")
		_, err = os.Stat(path)
		return databaseSource{path: path}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return databaseSource{}, err
	}
	defer f.Close()
	sum := &trailingChecksum{hash: sha256.New()}
	size, err := io.Copy(sum, f)
	if err == nil {
		err = sum.verify(size)
	}
	if err != nil {
		return databaseSource{}, fmt.Errorf("%s: %w", path, err)
	}
	return databaseSource{path: path, snapshot: true}, nil
}

// Info describes a snapshot.
type Info struct {
	// Revision is the newest revision; Keys the number of keys of all revisions.
	Revision int64
	Keys     int
	// Bytes is the size of the database.
	Bytes int64
	// Hash is the CRC-32 (Castagnoli) of the content, as etcdutl prints it.
	Hash uint32
	// Version is the storage version; empty before etcd 3.6.
	Version string
}

// Status verifies a snapshot file, or the database in the data folder of a stopped etcd,
// and describes it.
func Status(path string) (Info, error) {
	from, err := databaseFile(path)
	if err != nil {
		return Info{}, fmt.Errorf("snapshot status: %w", err)
	}
	s, err := snapshot.NewV3(zap.NewNop()).Status(from.path)
	if err != nil {
		return Info{}, fmt.Errorf("snapshot status: %s: %w", from.path, err)
	}
	return Info{Revision: s.Revision, Keys: s.TotalKey, Bytes: s.TotalSize, Hash: s.Hash, Version: s.Version}, nil
}

// Package embedded runs an etcd server inside the process, so that a control plane needs no
// external one. It is an ordinary etcd of one member on an ordinary data directory: every write is
// on disk before it is acknowledged, and `etcd --data-dir` can use the directory.
//
// States: Start → serving → Stop. The client of the Server calls the server directly, without
// sockets or encoding. While it serves, Maintain keeps its database small and below its quota
// (maintain.go). Stock tools can reach it at ListenClient, if configured. Package build starts
// it if no etcd servers are given; tests start it through etcdtest.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"binnacle/services/apiserver/internal/storage/etcd"
)

const (
	// tickInterval is the interval at which an idle server wakes up.
	tickInterval = 100 * time.Millisecond
	// electionTimeout limits leases, too: none is shorter than one and a half times the timeout.
	electionTimeout = 500 * time.Millisecond

	// DefaultQuota is the largest database size that etcd's authors suggest.
	DefaultQuota = 8 << 30
	// snapshotCount is the number of entries between two snapshots. It limits the entries that a
	// start holds in memory and replays. A snapshot takes a few hundred bytes and two syncs.
	snapshotCount = 1000
	// catchUpEntries is the number of applied entries that stay in memory for other members. There
	// are none. etcd keeps up to a hundred more.
	catchUpEntries = 1
	// walFiles is the number of files of the log that are kept after a snapshot. A start reads all
	// files. One file holds the entries of many snapshots.
	walFiles         = 2
	progressInterval = 5 * time.Second
	// checkLogInterval is the interval of checks of the log during a slow start.
	checkLogInterval = 250 * time.Millisecond
)

// segmentBytes is the size of a file of etcd's log. A start reads the last files completely, twice.
// etcd's default is 64 MB.
const segmentBytes = 16 << 20

// setSegmentSize applies segmentBytes to the process, as etcd requires.
var setSegmentSize = sync.OnceFunc(func() { wal.SegmentSizeBytes = segmentBytes })

// Options configures a Server.
type Options struct {
	// DataDir holds the data. It is created if it does not exist.
	DataDir string
	// ListenClient is a URL such as https://127.0.0.1:2379 or unix:///run/etcd.sock at which other
	// processes can reach the server. Empty, the default, keeps it private. A socket is accessible
	// to this user only.
	ListenClient string
	// CertFile and KeyFile are the certificate of a TLS listener. ClientCAFile verifies its
	// clients. TLS requires all three.
	CertFile, KeyFile, ClientCAFile string
	// QuotaBytes is the database size at which writes are rejected; 0 means DefaultQuota.
	QuotaBytes int64
	// StopTimeout bounds how long Stop waits for open requests and watches of other processes; 0 means
	// etcd's request timeout.
	StopTimeout time.Duration
	// Metrics registers the binnacle_embedded_etcd_* metrics; nil leaves them unregistered.
	Metrics prometheus.Registerer
	// Logger receives etcd's warnings; nil discards them.
	Logger *slog.Logger
}

// Server is a running etcd server.
type Server struct {
	member  *member
	client  *clientv3.Client
	watches *watchClient
	gate    gate
	lock    *fileutil.LockedFile
	quota   int64
	log     *slog.Logger
}

// ErrInUse means that another process has the data directory open.
var ErrInUse = errors.New("the data directory is in use by another process")

// Start starts a server and returns when it responds to linearizable reads. The context bounds the
// start only.
func Start(ctx context.Context, opts Options) (*Server, error) {
	setSegmentSize()
	if opts.DataDir == "" {
		return nil, errors.New("embedded etcd: no data directory")
	}
	lock, err := lockDir(opts.DataDir)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: --data-dir=%s: %w", opts.DataDir, err)
	}
	started, err := startEtcd(opts)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	server := &Server{member: started, lock: lock, quota: started.server.Cfg.QuotaBackendBytes, log: opts.Logger}
	if server.log == nil {
		server.log = slog.New(slog.DiscardHandler)
	}
	server.client = newClient(started.server, &server.gate)
	server.watches = newWatchClient(started.server, &server.gate)
	if err := server.finishStart(ctx, opts); err != nil {
		server.Stop()
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	return server, nil
}

// startEtcd starts etcd, and releases the reserved space before if the disk is almost full.
func startEtcd(opts Options) (*member, error) {
	free, known := beyondReserve(opts.DataDir, diskSpace)
	if known && free < scarceBytes {
		if err := releaseReserve(opts.DataDir); err != nil {
			return nil, err
		}
	}
	return startMember(opts, etcd.ZapLogger(opts.Logger, suppressedWarnings...))
}

// finishStart waits until the server is ready, and completes its setup.
func (s *Server) finishStart(ctx context.Context, opts Options) error {
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	if err := s.awaitReads(ctx); err != nil {
		return err
	}
	if opts.ListenClient == "" {
		if err := s.clearElections(ctx); err != nil {
			return err
		}
	}
	if opts.Metrics != nil {
		return s.registerMetrics(opts.Metrics)
	}
	return nil
}

// awaitReady waits until the server serves requests.
func (s *Server) awaitReady(ctx context.Context) error {
	if err := electNow(ctx, s.member.server); err != nil {
		return err
	}
	ticker := time.NewTicker(checkLogInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.member.server.ReadyNotify():
			return nil
		case err := <-s.member.errs:
			return err
		case <-s.member.server.StopNotify():
			return errors.New("the server stopped")
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if err := checkLog(s.member.server); err != nil {
				return err
			}
		}
	}
}

// awaitReads waits until a linearizable read succeeds. etcd rejects a read that arrives before its
// loop of reads has noticed the first election.
func (s *Server) awaitReads(ctx context.Context) error {
	for {
		if err := s.member.server.LinearizableReadNotify(ctx); !errors.Is(err, etcderrors.ErrLeaderChanged) {
			return err
		}
	}
}

// Client returns a client that calls the server directly. Stop closes it.
func (s *Server) Client() *clientv3.Client { return s.client }

// Config returns the configuration of a store on this server. The caller adds the rest.
func (s *Server) Config() etcd.Config {
	return etcd.Config{
		Client:        s.client,
		Watch:         s.watches,
		LocalRevision: s.newestRevision,
		Changes:       s.readChanges,
		Size:          s.databaseBytes,
	}
}

// databaseBytes returns the size of the database in bytes.
func (s *Server) databaseBytes(context.Context) (int64, error) {
	return s.member.server.Backend().Size(), nil
}

func (s *Server) newestRevision() (int64, error) {
	if err := s.gate.enter(); err != nil {
		return 0, err
	}
	defer s.gate.inside.Done()
	return s.member.server.KV().Rev(), nil
}

// Endpoint returns the public address of the server; empty if it is private.
func (s *Server) Endpoint() string {
	if s.member.listener == nil {
		return ""
	}
	addr := s.member.listener.Addr()
	switch {
	case addr.Network() == "unix":
		return "unix://" + addr.String()
	case s.member.server.Cfg.ClientCertAuthEnabled:
		return "https://" + addr.String()
	}
	return "http://" + addr.String()
}

// Err delivers a failure that stopped the server. Stop closes it.
func (s *Server) Err() <-chan error { return s.member.errs }

// Stop shuts down the server. All acknowledged writes are on disk already. Watches that other
// clients hold open delay it by up to Options.StopTimeout. It is called once.
func (s *Server) Stop() {
	s.watches.stop()
	s.gate.close()
	s.client.Close()
	s.member.stop()
	s.lock.Close()
}

// clearElections deletes the elections of earlier processes. Their leaders have ended, because only
// this process reaches the server.
func (s *Server) clearElections(ctx context.Context) error {
	resp, err := s.client.Get(ctx, etcd.ElectionPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count == 0 {
		return err
	}
	_, err = s.client.Delete(ctx, etcd.ElectionPrefix, clientv3.WithPrefix())
	return err
}

// suppressedWarnings are warnings of etcd that do not indicate a problem.
var suppressedWarnings = []string{
	// The configuration is intended.
	"Running http and grpc server on single port",
	"simple token is not cryptographically signed",
	// etcd writes the version of a new directory a moment later.
	"Failed to detect schema version",
	"failed to update storage version",
	"failed to update cluster version",
	// The sender of the request gets the error.
	"failed to apply request",
	// The server is shutting down.
	"serving from embedded etcd failed",
	"insecure grpc server due to error",
	// etcd still needs a file of its log. It checks the files every 30 s.
	"failed to lock file",
	// etcd publishes its name repeatedly without a pause until it leads.
	"failed to publish local member to cluster through raft",
}

// lockDir locks the directory for this process. etcd itself would wait forever for a directory in
// use.
func lockDir(dir string) (*fileutil.LockedFile, error) {
	if err := fileutil.TouchDirAll(etcd.ZapLogger(nil), dir); err != nil {
		return nil, err
	}
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "binnacle.lock"), os.O_CREATE|os.O_WRONLY, fileutil.PrivateFileMode)
	if err != nil {
		return nil, asInUse(err)
	}
	// A stock etcd locks only its database.
	db, err := fileutil.TryLockFile(filepath.Join(dir, "member", "snap", "db"), os.O_RDWR, fileutil.PrivateFileMode)
	switch {
	case err == nil:
		db.Close()
	case !errors.Is(err, os.ErrNotExist):
		lock.Close()
		return nil, asInUse(err)
	}
	return lock, nil
}

// asInUse returns ErrInUse for the error of a file that another process has locked.
func asInUse(err error) error {
	if errors.Is(err, fileutil.ErrLocked) {
		return ErrInUse
	}
	return err
}

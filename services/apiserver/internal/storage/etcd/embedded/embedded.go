// Package embedded runs an etcd server inside the process, so that a control
// plane needs no other. It is an ordinary etcd of one member on an ordinary
// data directory: every write is on disk before it is acknowledged, and
// `etcd --data-dir` can take the directory over.
//
// States: Start → serving → Stop. The client that the Server hands out calls
// the server directly, without sockets or encoding. While it serves, Maintain keeps
// its database small and below its quota (maintain.go), and stock tools reach it at
// ListenClient, if asked for. app starts it when no etcd servers are given; tests
// start it through etcdtest.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/zaplog"
)

const (
	// An idle server wakes up once per tick, and no lease is shorter than one
	// and a half times the election timeout.
	tick     = 100 * time.Millisecond
	election = 500 * time.Millisecond

	// DefaultQuota is what etcd's authors suggest as the largest database.
	DefaultQuota = 8 << 30
	// snapshotCount bounds how many entries a start replays, which it does with all of
	// them in memory. A snapshot is some hundred bytes and two syncs. Of those that were
	// applied, catchUpEntries stay in memory, and up to a hundred more: there is no
	// other member that could need them.
	snapshotCount  = 1000
	catchUpEntries = 1
	// walFiles of segmentBytes are left of what is in a snapshot: a start reads all that there
	// are. One holds the entries of many snapshots.
	walFiles         = 2
	progressInterval = 5 * time.Second
	// checkLogEvery is how often a start that takes long looks why.
	checkLogEvery = 250 * time.Millisecond
)

// segmentBytes is the size of a file of etcd's log, of which a start reads the last ones whole, twice:
// etcd's own are 64 MB.
const segmentBytes = 16 << 20

// shortSegments sets it for the process, as etcd has it.
var shortSegments = sync.OnceFunc(func() { wal.SegmentSizeBytes = segmentBytes })

// Options of a Server.
type Options struct {
	// DataDir holds the data; it is made when it does not exist.
	DataDir string
	// ListenClient is a URL such as https://127.0.0.1:2379 or
	// unix:///run/etcd.sock at which others reach the server too; empty, the
	// default, keeps it private. A socket is for this user alone.
	ListenClient string
	// CertFile and KeyFile are what a listener with TLS shows, ClientCAFile signs
	// who may connect; all are needed then.
	CertFile, KeyFile, ClientCAFile string
	// QuotaBytes is the size of the database from which on writes are refused; 0
	// means DefaultQuota.
	QuotaBytes int64
	// Metrics registers the binnacle_embedded_etcd_* metrics; nil leaves them
	// unregistered.
	Metrics prometheus.Registerer
	// Logger is told of etcd's warnings; nil discards.
	Logger *slog.Logger
}

// Server is a running etcd server.
type Server struct {
	etcd    *embed.Etcd
	client  *clientv3.Client
	watches *watchClient
	gate    gate
	lock    *fileutil.LockedFile
	quota   int64
	log     *slog.Logger
}

// ErrInUse tells that another process has the data directory open.
var ErrInUse = errors.New("the data directory is in use by another process")

// Start returns when the server answers linearizable reads. The context bounds
// the start only.
func Start(ctx context.Context, opts Options) (*Server, error) {
	shortSegments()
	if opts.DataDir == "" {
		return nil, errors.New("embedded etcd: no data directory")
	}
	lock, err := lockDir(opts.DataDir)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %s: %w", opts.DataDir, err)
	}
	cfg, err := config(opts)
	if err != nil {
		lock.Close()
		return nil, err
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	s := &Server{etcd: e, lock: lock, quota: cfg.QuotaBackendBytes, log: opts.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.client = newClient(e.Server, &s.gate)
	s.watches = newWatchClient(e.Server, &s.gate)
	if err = s.awaitReady(ctx); err == nil && opts.ListenClient == "" {
		err = s.clearElections(ctx)
	}
	if socket, ok := strings.CutPrefix(opts.ListenClient, "unix://"); ok && err == nil {
		err = os.Chmod(socket, 0o600)
	}
	if err == nil && opts.Metrics != nil {
		err = s.register(opts.Metrics)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	return s, nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	if err := hasten(ctx, s.etcd.Server); err != nil {
		return err
	}
	ticker := time.NewTicker(checkLogEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.etcd.Server.ReadyNotify():
			return nil
		case err := <-s.etcd.Err():
			return err
		case <-s.etcd.Server.StopNotify():
			return errors.New("the server stopped")
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if err := checkLog(s.etcd.Server); err != nil {
				return err
			}
		}
	}
}

// Client calls the server directly. Stop closes it.
func (s *Server) Client() *clientv3.Client { return s.client }

// WatchClient opens watch streams directly.
func (s *Server) WatchClient() pb.WatchClient { return s.watches }

// Config is that of a store on this server; the caller adds the rest.
func (s *Server) Config() etcd.Config {
	return etcd.Config{Client: s.client, Watch: s.watches, Newest: s.newest, Changes: s.changes, Size: s.size}
}

func (s *Server) size(context.Context) (int64, error) { return s.etcd.Server.Backend().Size(), nil }

func (s *Server) newest() (int64, error) {
	if err := s.gate.enter(); err != nil {
		return 0, err
	}
	defer s.gate.inside.Done()
	return s.etcd.Server.KV().Rev(), nil
}

// Endpoint is where others reach the server; empty when it is private.
func (s *Server) Endpoint() string {
	if len(s.etcd.Clients) == 0 {
		return ""
	}
	addr := s.etcd.Clients[0].Addr()
	if addr.Network() == "unix" {
		return "unix://" + addr.String()
	}
	return s.etcd.Config().ListenClientUrls[0].Scheme + "://" + addr.String()
}

// Err tells of a failure that ended the server; it is closed by Stop.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Stop ends the server; all that was acknowledged is on disk already. Watches
// that others hold open delay it by up to five seconds. It is called once.
func (s *Server) Stop() {
	s.watches.stop()
	s.gate.close()
	s.client.Close()
	s.etcd.Close()
	s.lock.Close()
}

// clearElections voids elections of earlier processes: whoever held one is
// dead, because nobody but this process reaches the server.
func (s *Server) clearElections(ctx context.Context) error {
	resp, err := s.client.Get(ctx, etcd.ElectionPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count == 0 {
		return err
	}
	_, err = s.client.Delete(ctx, etcd.ElectionPrefix, clientv3.WithPrefix())
	return err
}

// known are warnings of etcd about how it is started here, on purpose; about a
// new directory, whose version it writes a moment later; about the end; about
// requests whose error their sender is told; about files of its log that are not removed
// yet because it needs them, which it looks at every 30 s; and about its name, which it
// writes again and again without a pause until it leads.
var known = []string{
	"Running http and grpc server on single port",
	"simple token is not cryptographically signed",
	"Failed to detect schema version",
	"failed to update storage version",
	"check file permission",
	"failed to update cluster version",
	"failed to apply request",
	"serving from embedded etcd failed",
	"insecure grpc server due to error",
	"failed to lock file",
	"failed to publish local member to cluster through raft",
}

func config(opts Options) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name = "binnacle"
	cfg.Dir = opts.DataDir
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zaplog.New(opts.Logger, known...))
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = nil
	cfg.EnableGRPCGateway = false
	if opts.ListenClient != "" {
		u, err := url.Parse(opts.ListenClient)
		if err != nil {
			return nil, fmt.Errorf("embedded etcd: client address: %w", err)
		}
		switch u.Scheme {
		case "http", "unix":
		case "https":
			if opts.CertFile == "" || opts.KeyFile == "" || opts.ClientCAFile == "" {
				return nil, errors.New("embedded etcd: a listener with TLS needs a certificate, its key and the CA of its clients")
			}
			cfg.ClientTLSInfo = transport.TLSInfo{CertFile: opts.CertFile, KeyFile: opts.KeyFile, TrustedCAFile: opts.ClientCAFile, ClientCertAuth: true}
		default:
			return nil, fmt.Errorf("embedded etcd: client address %q is neither https, http nor unix", opts.ListenClient)
		}
		if cfg.ListenClientUrls = []url.URL{*u}; u.Scheme != "unix" {
			cfg.AdvertiseClientUrls = cfg.ListenClientUrls
		}
	}
	cfg.TickMs = uint(tick / time.Millisecond)
	cfg.ElectionMs = uint(election / time.Millisecond)
	if cfg.QuotaBackendBytes = opts.QuotaBytes; opts.QuotaBytes == 0 {
		cfg.QuotaBackendBytes = DefaultQuota
	}
	cfg.SnapshotCount = snapshotCount
	cfg.SnapshotCatchUpEntries = catchUpEntries
	cfg.ExperimentalSnapshotCatchUpEntries = catchUpEntries
	cfg.MaxWalFiles = walFiles
	cfg.WatchProgressNotifyInterval = progressInterval
	cfg.AutoCompactionRetention = "0"
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	return cfg, nil
}

// lockDir takes the directory for this process. etcd itself would wait for a
// directory that is in use, without end.
func lockDir(dir string) (*fileutil.LockedFile, error) {
	if err := fileutil.TouchDirAll(zaplog.New(nil), dir); err != nil {
		return nil, err
	}
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "binnacle.lock"), os.O_CREATE|os.O_WRONLY, fileutil.PrivateFileMode)
	if err != nil {
		return nil, inUse(err)
	}
	// A stock etcd locks its database only.
	db, err := fileutil.TryLockFile(filepath.Join(dir, "member", "snap", "db"), os.O_RDWR, fileutil.PrivateFileMode)
	switch {
	case err == nil:
		db.Close()
	case !errors.Is(err, os.ErrNotExist):
		lock.Close()
		return nil, inUse(err)
	}
	return lock, nil
}

func inUse(err error) error {
	if errors.Is(err, fileutil.ErrLocked) {
		return ErrInUse
	}
	return err
}

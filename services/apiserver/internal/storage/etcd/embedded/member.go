package embedded

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/features"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// member is the only member of a cluster of etcd. It is started without the package embed of etcd,
// which makes the linker keep all exported methods; see docs/adr/0024-small-clients.md.
type member struct {
	server   *etcdserver.EtcdServer
	listener net.Listener // nil if the member is private
	grpc     *grpc.Server // nil if the member is private
	errs     chan error
	serving  sync.WaitGroup
	// stopTimeout bounds how long stop waits for requests of other processes.
	stopTimeout time.Duration
}

// startMember starts a member, which serves gRPC to other processes if opts has an address.
func startMember(opts Options, log *zap.Logger) (*member, error) {
	cfg, err := memberConfig(opts, log)
	if err != nil {
		return nil, err
	}
	m := &member{errs: make(chan error, 1)}
	var tlsConfig *tls.Config
	if opts.ListenClient != "" {
		if m.listener, tlsConfig, err = listen(opts, log); err != nil {
			return nil, err
		}
	}
	if m.server, err = etcdserver.NewServer(*cfg); err != nil {
		if m.listener != nil {
			m.listener.Close()
		}
		return nil, err
	}
	m.stopTimeout = cmp.Or(opts.StopTimeout, m.server.Cfg.ReqTimeout())
	m.server.Start()
	if m.listener != nil {
		m.grpc = v3rpc.Server(m.server, tlsConfig, nil,
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientKeepaliveMinTime}))
		m.serving.Go(func() { m.serve() })
	}
	return m, nil
}

// serve serves requests of other processes once the member is ready.
func (m *member) serve() {
	select {
	case <-m.server.StoppingNotify():
		return
	case <-m.server.ReadyNotify():
	}
	if err := m.grpc.Serve(m.listener); err != nil {
		m.errs <- err
	}
}

// stop ends the requests of other processes, waits for them up to a bound, and stops the member. It
// closes errs.
func (m *member) stop() {
	if m.grpc != nil {
		force := time.AfterFunc(m.stopTimeout, m.grpc.Stop)
		m.grpc.GracefulStop()
		force.Stop()
		m.listener.Close()
	}
	m.server.Stop()
	m.serving.Wait()
	close(m.errs)
}

// Defaults of etcd.
const (
	peerURL                = "http://localhost:2380" // nothing listens
	clientURL              = "http://localhost:2379"
	clusterToken           = "etcd-cluster"
	clientKeepaliveMinTime = 5 * time.Second
	maxTxnOps              = 128
	maxRequestBytes        = 1.5 * 1024 * 1024
	maxSnapshotFiles       = 5
	tokenTTLSeconds        = 300
	slowApply              = 100 * time.Millisecond
	slowUnaryRequest       = 300 * time.Millisecond
	compactHashInterval    = time.Minute
	downgradeCheckInterval = 5 * time.Second
)

// memberName is the name of the only member.
const memberName = "binnacle"

// memberConfig returns the configuration of etcd.
func memberConfig(opts Options, log *zap.Logger) (*config.ServerConfig, error) {
	peers, err := types.NewURLsMap(memberName + "=" + peerURL)
	if err != nil {
		return nil, err
	}
	clients, err := advertisedURLs(opts)
	if err != nil {
		return nil, err
	}
	cfg := &config.ServerConfig{
		Name:                        memberName,
		DataDir:                     opts.DataDir,
		NewCluster:                  true,
		InitialPeerURLsMap:          peers,
		InitialClusterToken:         clusterToken,
		PeerURLs:                    peers[memberName],
		ClientURLs:                  clients,
		Logger:                      log,
		TickMs:                      uint(tickInterval / time.Millisecond),
		ElectionTicks:               int(electionTimeout / tickInterval),
		InitialElectionTickAdvance:  true,
		PreVote:                     true,
		StrictReconfigCheck:         true,
		MaxLearners:                 membership.DefaultMaxLearners,
		SnapshotCount:               snapshotCount,
		SnapshotCatchUpEntries:      catchUpEntries,
		MaxSnapFiles:                maxSnapshotFiles,
		MaxWALFiles:                 walFiles,
		QuotaBackendBytes:           opts.QuotaBytes,
		BackendFreelistType:         bolt.FreelistMapType,
		CompactHashCheckTime:        compactHashInterval,
		DowngradeCheckTime:          downgradeCheckInterval,
		WatchProgressNotifyInterval: progressInterval,
		MaxTxnOps:                   maxTxnOps,
		MaxRequestBytes:             maxRequestBytes,
		MaxConcurrentStreams:        math.MaxUint32,
		WarningApplyDuration:        slowApply,
		WarningUnaryRequestDuration: slowUnaryRequest,
		ClientCertAuthEnabled:       opts.ClientCAFile != "",
		AuthToken:                   "simple",
		TokenTTL:                    tokenTTLSeconds,
		BcryptCost:                  uint(bcrypt.DefaultCost),
		V2Deprecation:               config.V2DeprDefault,
		ServerFeatureGate:           features.NewDefaultServerFeatureGate(memberName, log),
		Metrics:                     "basic",
	}
	if cfg.QuotaBackendBytes == 0 {
		cfg.QuotaBackendBytes = DefaultQuota
	}
	return cfg, nil
}

// advertisedURLs returns the addresses in the list of members.
func advertisedURLs(opts Options) (types.URLs, error) {
	u, err := url.Parse(opts.ListenClient)
	if err != nil {
		return nil, fmt.Errorf("client address: %w", err)
	}
	if u.Scheme == "http" || u.Scheme == "https" {
		return types.NewURLs([]string{opts.ListenClient})
	}
	return types.NewURLs([]string{clientURL})
}

// listen opens the listener for other processes, and returns its TLS configuration, or nil for a
// listener without TLS.
func listen(opts Options, log *zap.Logger) (net.Listener, *tls.Config, error) {
	u, err := url.Parse(opts.ListenClient)
	if err != nil {
		return nil, nil, fmt.Errorf("client address: %w", err)
	}
	switch u.Scheme {
	case "http":
		l, err := net.Listen("tcp", u.Host)
		return l, nil, err
	case "unix":
		l, err := listenPrivately(u.Host + u.Path)
		return l, nil, err
	case "https":
		if opts.CertFile == "" || opts.KeyFile == "" || opts.ClientCAFile == "" {
			return nil, nil, errors.New("a listener with TLS needs a certificate, its key and the CA of its clients")
		}
		info := transport.TLSInfo{
			CertFile:       opts.CertFile,
			KeyFile:        opts.KeyFile,
			TrustedCAFile:  opts.ClientCAFile,
			ClientCertAuth: true,
			MinVersion:     tls.VersionTLS12,
			Logger:         log,
		}
		c, err := info.ServerConfig()
		if err != nil {
			return nil, nil, err
		}
		l, err := net.Listen("tcp", u.Host)
		return l, c, err
	}
	return nil, nil, fmt.Errorf("client address %q is neither https, http nor unix", opts.ListenClient)
}

// listenPrivately opens a socket that only this user can use.
func listenPrivately(socket string) (net.Listener, error) {
	l, err := transport.NewUnixListener(socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

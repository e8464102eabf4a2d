package build

import (
	"context"
	"errors"
	"fmt"
	"time"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/fanout"
	"binnacle/services/apiserver/internal/storage/memstore"
)

// objectStore is the main store: the storage contract, a health check and the bounds of its
// history.
type objectStore interface {
	storage.Interface
	Ping(ctx context.Context) error
	History(ctx context.Context) (oldest, newest int64, err error)
}

// mainStore stores the objects of all resources without an override.
type mainStore struct {
	store   objectStore
	elector fanout.Elector   // nil with the memory store
	etcd    *embedded.Server // nil with external etcd and with the memory store
}

func newMainStore(ctx context.Context, b *base, o *config.EtcdOptions) (*mainStore, error) {
	if o.Backend == config.BackendMemory {
		s := memstore.New()
		b.life.onClose(s.Close)
		b.life.inBackground("compactor", func(ctx context.Context) error { return s.CompactEvery(ctx, o.CompactionInterval) })
		return &mainStore{store: s}, nil
	}
	m := &mainStore{}
	connection, err := m.connect(ctx, b, o)
	if err != nil {
		return nil, err
	}
	connection.Prefix = b.root
	connection.LeaseReuse = time.Duration(o.LeaseReuseSeconds) * time.Second
	connection.Logger, connection.Metrics = b.log, b.metrics
	s, err := etcd.New(connection)
	if err != nil {
		return nil, err
	}
	m.store, m.elector = s, etcd.NewElector(s, 0)
	b.life.inBackground("compactor", (&etcd.Compactor{Store: s, Interval: o.CompactionInterval, Logger: b.log}).Run)
	if len(o.Servers) > 0 {
		b.life.inBackground("etcd monitor", (&etcd.Monitor{Ping: s.Ping, Endpoints: o.Servers, Logger: b.log}).Run)
	}
	return m, nil
}

// connect connects to the servers of etcd, or starts the embedded etcd.
func (m *mainStore) connect(ctx context.Context, b *base, o *config.EtcdOptions) (c etcd.Config, err error) {
	if len(o.Servers) > 0 {
		c.Client, err = etcd.Dial(etcd.DialOptions{Servers: o.Servers, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Logger: b.log, Metrics: b.metrics, Dial: b.egress.To(egress.Etcd), Traces: b.traces.Inner()})
		if err != nil {
			return c, fmt.Errorf("--etcd-servers: %w", err)
		}
		b.life.onClose(func() { _ = c.Client.Close() })
		return c, nil
	}
	m.etcd, err = embedded.Start(ctx, embedded.Options{
		DataDir: o.DataDir, QuotaBytes: o.Embedded.QuotaBytes, ListenClient: o.Embedded.ListenClientURL,
		CertFile: o.Embedded.CertFile, KeyFile: o.Embedded.KeyFile, ClientCAFile: o.Embedded.TrustedCAFile,
		Logger: b.log, Metrics: b.metrics,
	})
	if err != nil {
		return c, err
	}
	b.life.onClose(m.etcd.Stop)
	b.life.inBackground("embedded etcd", m.watchEtcd)
	b.life.inBackground("embedded etcd's maintenance", m.etcd.Maintain)
	return m.etcd.Config(), nil
}

// watchEtcd returns an error when the embedded etcd stops, which ends the process.
func (m *mainStore) watchEtcd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-m.etcd.Err():
		return fmt.Errorf("embedded etcd: %w", errors.Join(errors.New("stopped"), err))
	}
}

package build

import (
	"context"
	"time"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/memstore"
)

// objectStore is the main store: the storage contract, a health check and the bounds of its
// history.
type objectStore interface {
	storage.Interface
	Ping(ctx context.Context) error
	History(ctx context.Context) (oldest, newest int64, err error)
}

func (p *parts) buildStore(ctx context.Context) error {
	if p.options.Etcd.Backend == config.BackendMemory {
		s := memstore.New()
		p.close = append(p.close, s.Close)
		p.store, p.compact = s, func(ctx context.Context) error { return s.CompactEvery(ctx, p.options.Etcd.CompactionInterval) }
		return nil
	}
	return p.buildEtcdStore(ctx)
}

func (p *parts) buildEtcdStore(ctx context.Context) (err error) {
	o := p.options.Etcd
	cfg := etcd.Config{}
	if len(o.Servers) == 0 {
		if p.etcd, err = embedded.Start(ctx, embedded.Options{
			DataDir: o.DataDir, QuotaBytes: o.Embedded.QuotaBytes, ListenClient: o.Embedded.ListenClientURL,
			CertFile: o.Embedded.CertFile, KeyFile: o.Embedded.KeyFile, ClientCAFile: o.Embedded.TrustedCAFile,
			Logger: p.log, Metrics: p.metrics,
		}); err != nil {
			return err
		}
		p.close = append(p.close, p.etcd.Stop)
		cfg = p.etcd.Config()
	} else {
		client, err := etcd.Dial(etcd.DialOptions{Servers: o.Servers, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Logger: p.log, Metrics: p.metrics, Dial: p.egress.To(egress.Etcd), Traces: p.traces.Inner()})
		if err != nil {
			return err
		}
		p.close = append(p.close, func() { _ = client.Close() })
		cfg.Client = client
	}
	cfg.Prefix = p.root()
	cfg.LeaseReuse = time.Duration(o.LeaseReuseSeconds) * time.Second
	cfg.Logger, cfg.Metrics = p.log, p.metrics
	s, err := etcd.New(cfg)
	if err != nil {
		return err
	}
	p.store, p.elector = s, etcd.NewElector(s, 0)
	p.compact = (&etcd.Compactor{Store: s, Interval: o.CompactionInterval, Logger: p.log}).Run
	if len(o.Servers) > 0 {
		p.monitor = (&etcd.Monitor{Ping: s.Ping, Endpoints: o.Servers, Logger: p.log}).Run
	}
	return nil
}

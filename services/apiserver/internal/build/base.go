package build

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/features"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// base holds what most constructors need. It does not change.
type base struct {
	log     *slog.Logger
	metrics *prometheus.Registry
	gates   *features.Gates
	bounds  config.Bounds
	life    *lifecycle
	// egress selects the proxies to other networks; nil connects directly.
	egress *egress.Selector
	traces *tracing.Provider // nil if tracing is off
	// calls measures requests to webhooks and other services.
	calls *webhookclient.Metrics
	// host is the name of this machine, and identity that of this replica.
	host, identity string
	// root is the prefix of all keys. It begins with a slash and does not end with one.
	root string
	endpoint
}

// endpoint is the port that the server listens on, and the host:port at which clients reach it.
type endpoint struct {
	port    int
	address string
}

func newBase(ctx context.Context, o *config.Options, log *slog.Logger, metrics *prometheus.Registry, l *listener, life *lifecycle) (*base, error) {
	host, err := o.Hostname()
	if err != nil {
		return nil, err
	}
	if err := o.Features.Register(metrics); err != nil {
		return nil, err
	}
	b := &base{
		log: log, metrics: metrics, gates: o.Features, bounds: o.Bounds, life: life, calls: webhookclient.NewMetrics(metrics),
		host: host, identity: bootstrap.Identity(host), root: path.Join("/", o.Etcd.Prefix), endpoint: endpoint{l.port, l.address},
	}
	if b.egress, err = newEgress(o.Compatibility.EgressSelector, metrics); err != nil {
		return nil, err
	}
	if b.traces, err = b.newTracing(ctx, &o.Tracing); err != nil || b.traces == nil {
		return b, err
	}
	b.calls.Traced(b.traces)
	life.onClose(b.traces.Close)
	return b, nil
}

// newEgress reads the egress configuration.
func newEgress(file string, metrics prometheus.Registerer) (*egress.Selector, error) {
	if file == "" {
		return nil, nil
	}
	c, err := egress.Read(file)
	if err != nil {
		return nil, err
	}
	selector, err := egress.New(c, metrics)
	if err != nil {
		return nil, fmt.Errorf("failed to setup egress selector: %w", err)
	}
	return selector, nil
}

// newTracing creates the trace provider. Without a configuration there is none, and requests have no
// overhead.
func (b *base) newTracing(ctx context.Context, o *tracing.Options) (*tracing.Provider, error) {
	file, err := o.Read()
	if file == nil || err != nil {
		return nil, err
	}
	if !b.gates.Enabled(features.APIServerTracing) {
		return nil, errors.New("APIServerTracing feature is not enabled, but tracing config file was provided")
	}
	return tracing.New(ctx, tracing.Config{
		Configuration: file, Service: config.Name, Instance: b.identity, Dial: b.egress.To(egress.ControlPlane), Logger: b.log, Metrics: b.metrics,
	})
}

package build

import (
	"context"
	"errors"
	"time"

	"binnacle/libs/features"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/traced"
)

// buildTracing creates the trace provider. Without a configuration there is none, and requests have
// no overhead.
func (p *parts) buildTracing(ctx context.Context) error {
	file, err := p.options.Tracing.Read()
	if file == nil || err != nil {
		return err
	}
	if !p.options.Features.Enabled(features.APIServerTracing) {
		return errors.New("APIServerTracing feature is not enabled, but tracing config file was provided")
	}
	host, err := p.options.Hostname()
	if err != nil {
		return err
	}
	if p.traces, err = tracing.New(ctx, tracing.Config{
		Configuration: file, Service: config.Name, Instance: bootstrap.Identity(host), Dial: p.egress.To(egress.ControlPlane), Logger: p.log, Metrics: p.metrics,
	}); err != nil {
		return err
	}
	p.close = append(p.close, p.traces.Close)
	p.webhookMetrics.Traced(p.traces)
	return nil
}

// traced returns a store that makes spans of the calls of s, if tracing is configured.
func (p *parts) traced(s storage.Interface) storage.Interface {
	if p.traces == nil {
		return s
	}
	return &traced.Store{Interface: s, Root: p.root(), Wrote: func(ctx context.Context, key string, revision int64, at time.Time) {
		p.fanoutOf(key).Wrote(ctx, key, revision, at)
	}}
}

// timed returns a store that reports its times to the audit log, if there is one.
func (p *parts) timed(s storage.Interface) storage.Interface {
	if p.audit.auditor == nil {
		return s
	}
	return &traced.Timed{Interface: s, Took: func(ctx context.Context, d time.Duration) { audit.From(ctx).Spent(audit.Store, d) }}
}

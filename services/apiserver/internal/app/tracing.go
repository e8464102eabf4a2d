package app

import (
	"context"
	"errors"
	"time"

	"binnacle/libs/features"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/audit"
	"binnacle/services/apiserver/internal/bootstrap"
	"binnacle/services/apiserver/internal/egress"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/traced"
)

// buildTracing reads the configuration of traces. Without one there is no provider, and
// nothing below is ever put in the way of a request.
func (p *parts) buildTracing(ctx context.Context) error {
	config, err := p.options.Tracing.Read()
	if config == nil || err != nil {
		return err
	}
	if !p.options.Features.Enabled(features.APIServerTracing) {
		return errors.New("APIServerTracing feature is not enabled, but tracing config file was provided")
	}
	host, err := p.options.hostname()
	if err != nil {
		return err
	}
	if p.traces, err = tracing.New(ctx, tracing.Config{
		Configuration: config, Service: Name, Instance: bootstrap.Identity(host), Dial: p.egress.To(egress.ControlPlane), Logger: p.log, Metrics: p.metrics,
	}); err != nil {
		return err
	}
	p.close = append(p.close, p.traces.Close)
	p.calls.Traced(p.traces)
	return nil
}

// traced puts spans over a store, where traces are made, and tells the audit log of its
// time.
func (p *parts) traced(s storage.Interface) storage.Interface {
	if p.traces == nil && p.audit.trail == nil {
		return s
	}
	t := &traced.Store{Interface: s}
	if p.traces != nil {
		t.Wrote = func(ctx context.Context, key string, revision int64, at time.Time) {
			p.fanoutOf(key).Wrote(ctx, key, revision, at)
		}
	}
	if p.audit.trail != nil {
		t.Took = func(ctx context.Context, d time.Duration) { audit.From(ctx).Spent(audit.Store, d) }
	}
	return t
}

package build

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"binnacle/libs/filewatch"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/audit/backends"
	"binnacle/services/apiserver/internal/security/audit/policy"
)

// auditing holds the parts of the audit log.
type auditing struct {
	log      *slog.Logger
	auditor  *audit.Auditor // nil if auditing is off
	file     string
	policy   []byte // content of file
	backends []*backends.Backend
}

// newAuditing reads the policy and opens the backends. Auditing needs both, as in Kubernetes. The
// limiter bounds the work on large events.
func newAuditing(b *base, o *config.AuditOptions, limiter audit.Limiter) (*auditing, error) {
	a := &auditing{log: b.log, file: o.PolicyFile}
	var decides *policy.Policy
	if o.PolicyFile != "" {
		var err error
		if a.policy, err = filewatch.Read(o.PolicyFile); err != nil {
			return nil, fmt.Errorf("--audit-policy-file: loading audit policy file: failed to read file path %q: %w", o.PolicyFile, err)
		}
		if decides, err = a.parsePolicy(a.policy); err != nil {
			return nil, fmt.Errorf("--audit-policy-file: loading audit policy file: %w", err)
		}
	}
	metrics := audit.NewMetrics(b.metrics)
	made := backends.Config{Metrics: metrics, Logger: b.log, Dial: b.egress.To(egress.ControlPlane), Limiter: limiter, QueueBytes: b.bounds.AuditQueue, MaxPosts: b.bounds.AuditPosts}
	if o.Log.Enabled() && decides != nil {
		backend, err := backends.NewLog(&o.Log, made, os.Stdout)
		if err != nil {
			return nil, err
		}
		a.addBackend(b.life, backend)
	}
	if o.Webhook.Enabled() && decides != nil {
		backend, err := backends.NewWebhook(&o.Webhook, made)
		if err != nil {
			return nil, fmt.Errorf("initializing audit webhook: %w", err)
		}
		a.addBackend(b.life, backend)
	}
	if len(a.backends) == 0 {
		if o.Log.Enabled() || o.Webhook.Enabled() {
			b.log.Warn("no audit policy file is given, so nothing is audited; name one by --audit-policy-file")
		}
		return a, nil
	}
	most, sinks := int64(0), []audit.Sink{}
	for _, backend := range a.backends {
		most = max(most, backend.MaxEvent())
		sinks = append(sinks, backend)
	}
	a.auditor = audit.New(audit.Config{
		Policy: decides, Sinks: sinks, Metrics: metrics, Logger: b.log, MaxObject: min(most, b.bounds.AuditObject), MaxObjects: b.bounds.AuditObjects, Limiter: limiter, Slow: o.LatencyThreshold,
	})
	b.life.inBackground("audit policy", a.followPolicy)
	return a, nil
}

// addBackend adds a backend, which delivers queued events in the background.
func (a *auditing) addBackend(life *lifecycle, b *backends.Backend) {
	a.backends = append(a.backends, b)
	life.inBackground("audit", b.Run)
	life.onClose(func() {
		if err := b.Close(); err != nil {
			a.log.Warn("failed to close the audit log", "error", err)
		}
	})
}

// shuttingDown limits how long requests wait for the delivery of their events from now on. A slow
// reader of the log must not delay the shutdown.
func (a *auditing) shuttingDown() {
	for _, b := range a.backends {
		b.BeginShutdown()
	}
}

// parsePolicy parses a policy. Its errors name the file.
func (a *auditing) parsePolicy(data []byte) (*policy.Policy, error) {
	decides, err := policy.Parse(data, func(why string) {
		a.log.Warn("the audit policy has unknown or duplicate fields, which are ignored", "file", a.file, "error", why)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: from file %s", err, a.file)
	}
	return decides, nil
}

// followPolicy reloads the policy when its file changes.
func (a *auditing) followPolicy(ctx context.Context) error {
	return filewatch.Follow(ctx, a.log, a.file, a.policy, func(_ context.Context, data []byte, err error) {
		if err != nil {
			a.auditor.SetPolicy(nil, err)
			return
		}
		decides, err := a.parsePolicy(data)
		a.auditor.SetPolicy(decides, err)
	})
}

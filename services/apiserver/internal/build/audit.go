package build

import (
	"context"
	"errors"
	"fmt"
	"os"

	"binnacle/libs/filewatch"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/audit/backends"
	"binnacle/services/apiserver/internal/security/audit/policy"
)

// Bounds in bytes of the objects in audit events: of one object, and of all requests in progress.
const (
	maxAuditedObject  = 10 << 20
	maxAuditedObjects = 128 << 20
)

// auditing holds the parts of the audit log.
type auditing struct {
	auditor  *audit.Auditor // nil if auditing is off
	file     string
	policy   []byte // content of file
	backends []*backends.Backend
}

// buildAudit reads the policy and opens the backends. Auditing needs both, as in Kubernetes.
func (p *parts) buildAudit(context.Context) error {
	o := &p.options.Audit
	var decides *policy.Policy
	if o.PolicyFile != "" {
		var err error
		if p.audit.policy, err = filewatch.Read(o.PolicyFile); err != nil {
			return fmt.Errorf("loading audit policy file: failed to read file path %q: %w", o.PolicyFile, err)
		}
		if decides, err = p.auditPolicy(p.audit.policy); err != nil {
			return fmt.Errorf("loading audit policy file: %w", err)
		}
	}
	metrics := audit.NewMetrics(p.metrics)
	made := backends.Config{Metrics: metrics, Logger: p.log, Dial: p.egress.To(egress.ControlPlane), Limiter: auditLimiter{p}}
	if o.Log.Enabled() && decides != nil {
		b, err := backends.NewLog(&o.Log, made, os.Stdout)
		if err != nil {
			return err
		}
		p.addAuditBackend(b)
	}
	if o.Webhook.Enabled() && decides != nil {
		b, err := backends.NewWebhook(&o.Webhook, made)
		if err != nil {
			return fmt.Errorf("initializing audit webhook: %w", err)
		}
		p.addAuditBackend(b)
	}
	if len(p.audit.backends) == 0 {
		if o.Log.Enabled() || o.Webhook.Enabled() {
			p.log.Warn("no audit policy file is given, so nothing is audited; name one by --audit-policy-file")
		}
		return nil
	}
	most, sinks := int64(0), []audit.Sink{}
	for _, b := range p.audit.backends {
		most = max(most, b.MaxEvent())
		sinks = append(sinks, b)
	}
	p.audit.file = o.PolicyFile
	p.audit.auditor = audit.New(audit.Config{
		Policy: decides, Sinks: sinks, Metrics: metrics, Logger: p.log, MaxObject: min(most, maxAuditedObject), MaxObjects: maxAuditedObjects, Limiter: auditLimiter{p}, Slow: p.options.AuditLatencyThreshold,
	})
	return nil
}

// auditLimiter is the limiter of large responses. The server, which owns the limiter, is built
// after the audit log.
type auditLimiter struct{ p *parts }

// Enter implements audit.Limiter.
func (t auditLimiter) Enter(ctx context.Context) error {
	if t.p.server == nil {
		return errors.New("the server is not built yet")
	}
	return t.p.server.LongAnswers().Enter(ctx)
}

// Leave implements audit.Limiter.
func (t auditLimiter) Leave() { t.p.server.LongAnswers().Leave() }

// addAuditBackend adds a backend, which release closes.
func (p *parts) addAuditBackend(b *backends.Backend) {
	p.audit.backends = append(p.audit.backends, b)
	p.close = append(p.close, func() {
		if err := b.Close(); err != nil {
			p.log.Warn("failed to close the audit log", "error", err)
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

// auditPolicy parses a policy. Its errors name the file.
func (p *parts) auditPolicy(data []byte) (*policy.Policy, error) {
	decides, err := policy.Parse(data, func(why string) {
		p.log.Warn("the audit policy has unknown or duplicate fields, which are ignored", "file", p.options.Audit.PolicyFile, "error", why)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: from file %s", err, p.options.Audit.PolicyFile)
	}
	return decides, nil
}

// auditTasks returns tasks that deliver queued events and reload the policy when its file changes.
func (p *parts) auditTasks() (tasks []task.Task) {
	for _, b := range p.audit.backends {
		tasks = append(tasks, task.Task{Name: "audit", Run: b.Run})
	}
	if p.audit.auditor == nil {
		return nil
	}
	return append(tasks, task.Task{Name: "audit policy", Run: func(ctx context.Context) error {
		return filewatch.Follow(ctx, p.log, p.audit.file, p.audit.policy, func(_ context.Context, data []byte, err error) {
			if err != nil {
				p.audit.auditor.SetPolicy(nil, err)
				return
			}
			decides, err := p.auditPolicy(data)
			p.audit.auditor.SetPolicy(decides, err)
		})
	}})
}

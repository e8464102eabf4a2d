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

// Bounds of what is told of objects, in bytes: of one, and of all requests under way.
const (
	maxAuditedObject  = 10 << 20
	maxAuditedObjects = 128 << 20
)

// auditing is what tells of requests.
type auditing struct {
	trail    *audit.Auditor // nil when nothing is told
	file     string
	known    []byte
	backends []*backends.Backend
}

// buildAudit reads the policy and opens the backends. One without the other tells nothing,
// as in Kubernetes.
func (p *parts) buildAudit(context.Context) error {
	o := &p.options.Audit
	var decides *policy.Policy
	if o.PolicyFile != "" {
		var err error
		if p.audit.known, err = filewatch.Read(o.PolicyFile); err != nil {
			return fmt.Errorf("loading audit policy file: failed to read file path %q: %w", o.PolicyFile, err)
		}
		if decides, err = p.auditPolicy(p.audit.known); err != nil {
			return fmt.Errorf("loading audit policy file: %w", err)
		}
	}
	metrics := audit.NewMetrics(p.metrics)
	made := backends.Config{Metrics: metrics, Logger: p.log, Dial: p.egress.To(egress.ControlPlane), Limiter: auditTurns{p}}
	if o.Log.Enabled() && decides != nil {
		b, err := backends.NewLog(&o.Log, made, os.Stdout)
		if err != nil {
			return err
		}
		p.audits(b)
	}
	if o.Webhook.Enabled() && decides != nil {
		b, err := backends.NewWebhook(&o.Webhook, made)
		if err != nil {
			return fmt.Errorf("initializing audit webhook: %w", err)
		}
		p.audits(b)
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
	p.audit.trail = audit.New(audit.Config{
		Policy: decides, Sinks: sinks, Metrics: metrics, Logger: p.log, MaxObject: min(most, maxAuditedObject), MaxObjects: maxAuditedObjects, Limiter: auditTurns{p}, Slow: p.options.slowAudit,
	})
	return nil
}

// auditTurns are those of long answers, once there is a server that has some.
type auditTurns struct{ p *parts }

// Enter implements audit.Limiter.
func (t auditTurns) Enter(ctx context.Context) error {
	if t.p.server == nil {
		return errors.New("there are no turns yet")
	}
	return t.p.server.LongAnswers().Enter(ctx)
}

// Leave implements audit.Limiter.
func (t auditTurns) Leave() { t.p.server.LongAnswers().Leave() }

func (p *parts) audits(b *backends.Backend) {
	p.audit.backends = append(p.audit.backends, b)
	p.close = append(p.close, func() {
		if err := b.Close(); err != nil {
			p.log.Warn("closing the audit log", "error", err)
		}
	})
}

// ends tells that the last request has been answered: what the server does itself then must not
// wait for whoever does not read its log.
func (a *auditing) ends() {
	for _, b := range a.backends {
		b.BeginShutdown()
	}
}

// auditPolicy reads a policy; its errors name the file.
func (p *parts) auditPolicy(data []byte) (*policy.Policy, error) {
	decides, err := policy.Parse(data, func(why string) {
		p.log.Warn("the audit policy has fields that nobody knows, or has them twice; they are ignored", "file", p.options.Audit.PolicyFile, "error", why)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: from file %s", err, p.options.Audit.PolicyFile)
	}
	return decides, nil
}

// auditTasks deliver what waits, until the last request has ended, and follow the policy.
func (p *parts) auditTasks() (tasks []task.Task) {
	for _, b := range p.audit.backends {
		tasks = append(tasks, task.Task{Name: "audit", Run: b.Run})
	}
	if p.audit.trail == nil {
		return nil
	}
	return append(tasks, task.Task{Name: "audit policy", Run: func(ctx context.Context) error {
		return filewatch.Follow(ctx, p.log, p.audit.file, p.audit.known, func(_ context.Context, data []byte, err error) {
			if err != nil {
				p.audit.trail.SetPolicy(nil, err)
				return
			}
			decides, err := p.auditPolicy(data)
			p.audit.trail.SetPolicy(decides, err)
		})
	}})
}

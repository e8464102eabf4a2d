package resourcequota

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/request"
)

// Name is the name of the plugin in flags and configuration.
const Name = "ResourceQuota"

// chargeTimeout bounds how long a request waits for its charges, including the time in the queue.
const chargeTimeout = 10 * time.Second

// Quotas gives access to the quotas of the cluster.
type Quotas interface {
	// Each calls visit for each quota of a namespace, with its name, scopes and status. It reads
	// the cache, which contains all writes that this server has acknowledged. There may be many
	// large quotas, so they are passed one at a time. They are shared and must not be changed. Each
	// stops at an error of visit and when the request ends.
	Each(ctx context.Context, namespace string, visit func(*corev1.ResourceQuota) error) error
	// Change applies change to a quota as it is in the store and writes its status. It returns the
	// written revision, or 0 if nothing changed. It calls change again after a conflict. A missing
	// quota is a NotFound error.
	Change(ctx context.Context, namespace, name string, change func(*corev1.ResourceQuota)) (revision int64, err error)
}

// Config holds the dependencies of the plugin.
type Config struct {
	Quotas        Quotas
	Configuration *Configuration
	Gates         quota.Gates
	Now           func() time.Time
}

// Plugin implements admission.Reserver.
type Plugin struct {
	Config
	evaluators map[schema.GroupResource]*evaluator

	mu       sync.Mutex
	batchers map[string]*batcher // by namespace, while jobs are waiting
}

// New returns the plugin.
func New(c Config) *Plugin {
	return &Plugin{
		Config: c, batchers: map[string]*batcher{},
		evaluators: newEvaluators(c.Gates, c.Now),
	}
}

// Reserve charges a request to the quotas of its namespace. A dry run is checked but not charged.
func (p *Plugin) Reserve(ctx context.Context, req *admission.Request) (admission.Reservation, error) {
	if req.Namespace == "" || req.Operation != admission.Create && req.Operation != admission.Update || isIgnored(req) {
		return nil, nil
	}
	evaluator := p.evaluatorFor(req.Resource.GVR().GroupResource())
	if !evaluator.handles(req) {
		return nil, nil
	}
	quotas, err := p.evaluate(ctx, req, evaluator)
	if err != nil || len(quotas) == 0 {
		return nil, err
	}
	charging := &job{request: req, evaluator: evaluator, quotas: quotas, done: make(chan struct{})}
	if err := p.wait(ctx, req.Namespace, charging); err != nil {
		return nil, err
	}
	if len(charging.charged) == 0 {
		return nil, nil
	}
	return &reservation{plugin: p, namespace: req.Namespace, charges: charging.charged}, nil
}

// reservation holds the charges for a write. It implements admission.Reservation.
type reservation struct {
	plugin    *Plugin
	namespace string
	charges   []charge
}

// Commit implements admission.Reservation. The charges are already in the quotas.
func (r *reservation) Commit(context.Context) {}

// Rollback implements admission.Reservation. It refunds the charges, even if the request has been
// canceled. It waits for the refund, so that the client can use the quota again after the response.
func (r *reservation) Rollback(ctx context.Context) {
	refund := &job{refunds: r.charges, done: make(chan struct{})}
	// After an error, the charge stays until the quota controller counts the objects again.
	_ = r.plugin.wait(context.WithoutCancel(ctx), r.namespace, refund)
}

// errTooLong has the wording of Kubernetes.
var errTooLong = errors.New("resource quota evaluation timed out")

// wait queues a job and waits until it has finished or chargeTimeout has passed. The request is
// suspended meanwhile, because the goroutine that runs the job needs the limiter too.
func (p *Plugin) wait(ctx context.Context, namespace string, j *job) error {
	defer request.Suspend(ctx)()
	ctx, cancel := context.WithTimeout(ctx, chargeTimeout)
	defer cancel()
	p.enqueue(namespace, j)
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	if charges, finished := j.abandon(); finished {
		p.refund(namespace, charges)
	}
	return apierrors.NewInternalError(errTooLong)
}

// refund queues a job that refunds charges, and does not wait for it.
func (p *Plugin) refund(namespace string, charges []charge) {
	if len(charges) > 0 {
		p.enqueue(namespace, &job{refunds: charges, done: make(chan struct{})})
	}
}

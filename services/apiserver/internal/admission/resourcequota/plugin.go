package resourcequota

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/request"
)

// Name of the plugin in flags and configuration.
const Name = "ResourceQuota"

// patience is how long a request waits for its turn and for the store.
const patience = 10 * time.Second

// Quotas are those of the cluster.
type Quotas interface {
	// Each shows those of a namespace, as the cache has them, which has all that
	// this server acknowledged to clients: their names, scopes and statuses, one after the
	// other, as there may be many that are large. They are shared: nobody may change them. It
	// ends with what visit fails with, and with the request.
	Each(ctx context.Context, namespace string, visit func(*corev1.ResourceQuota) error) error
	// Change stores the status that change makes of a quota as it is in the store,
	// and returns the version that was written; 0 when nothing changed. It calls
	// change again when somebody else was quicker. A quota that is not there is a
	// NotFound error.
	Change(ctx context.Context, namespace, name string, change func(*corev1.ResourceQuota)) (revision int64, err error)
}

// Config is what the plugin works with.
type Config struct {
	Quotas        Quotas
	Configuration *Configuration
	Gates         Gates
	Now           func() time.Time
}

// Plugin implements admission.Claimer.
type Plugin struct {
	Config
	evaluators map[schema.GroupResource]*evaluator

	mu    sync.Mutex
	lanes map[string]*lane // by namespace, while somebody waits there
}

// New makes the plugin.
func New(c Config) *Plugin {
	return &Plugin{
		Config: c, lanes: map[string]*lane{},
		evaluators: evaluators(c.Gates, func() int64 { return c.Now().Unix() }),
	}
}

// Claim charges a request to the quotas of its namespace. A dry run is judged and
// not charged.
func (p *Plugin) Claim(ctx context.Context, r *admission.Request) (admission.Claim, error) {
	if r.Namespace == "" || r.Operation != admission.Create && r.Operation != admission.Update || ignored(r) {
		return nil, nil
	}
	e := p.evaluator(r.Resource.GVR().GroupResource())
	if !e.handles(r) {
		return nil, nil
	}
	asked, err := p.judge(ctx, r, e)
	if err != nil || len(asked) == 0 {
		return nil, err
	}
	j := &job{request: r, evaluator: e, quotas: asked, done: make(chan struct{})}
	if err := p.wait(ctx, r.Namespace, j); err != nil {
		return nil, err
	}
	if len(j.charged) == 0 {
		return nil, nil
	}
	return &claim{plugin: p, namespace: r.Namespace, charges: j.charged}, nil
}

// claim is what was charged for a write.
type claim struct {
	plugin    *Plugin
	namespace string
	charges   []charge
}

// Keep implements admission.Claim.
func (c *claim) Keep(context.Context) {}

// Drop implements admission.Claim: it gives back. That goes on without whoever
// asked for the write, and comes before the answer where it can.
func (c *claim) Drop(ctx context.Context) {
	_ = c.plugin.wait(context.WithoutCancel(ctx), c.namespace, &job{back: c.charges, done: make(chan struct{})}) // it is charged until the controller counts again
}

var errTooLong = errors.New("resource quota evaluation timed out")

// wait has a job done in its turn. Others may have the request's turn of large work meanwhile: who works
// in the lane needs one.
func (p *Plugin) wait(ctx context.Context, namespace string, j *job) error {
	defer request.Aside(ctx)()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.enter(namespace, j)
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	if charges, over := j.abandon(); over { // it was done meanwhile
		p.giveBack(namespace, charges)
	}
	return apierrors.NewInternalError(errTooLong)
}

// giveBack gives back what nobody waits for.
func (p *Plugin) giveBack(namespace string, charges []charge) {
	if len(charges) > 0 {
		p.enter(namespace, &job{back: charges, done: make(chan struct{})})
	}
}

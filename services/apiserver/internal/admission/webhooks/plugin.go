package webhooks

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
)

// The names of the plugins.
const (
	MutatingName   = "MutatingAdmissionWebhook"
	ValidatingName = "ValidatingAdmissionWebhook"
)

// Config is what both plugins work with.
type Config struct {
	// Configurations are read from here.
	Configurations Source
	// Ready tells whether they are loaded.
	Ready func() bool
	// Family, Namespaces and Authorizer are what requests are matched by.
	Family     matcher.Family
	Namespaces matcher.Namespaces
	Authorizer authorizer.Authorizer
	// Compiler is asked for when it is first needed.
	Compiler func() (*expressions.Compiler, error)
	Codec    *codec.Codec
	// Shapes are those of the kinds of all requests.
	Shapes *views.Shapes
	// Credentials and Services say how webhooks are reached.
	Credentials *Credentials
	Services    *webhookclient.Services
	// Ways lead to them.
	Ways  webhookclient.Ways
	Calls *webhookclient.Metrics // may be nil
	// Answers are those that are read at a time; nil is others than those of anybody else.
	Answers *webhookclient.Answers
	// Notify is told, by a goroutine of its own, of webhooks that no longer
	// answer, and of those that do again.
	Notify  func(context.Context, Notice)
	Metrics *Metrics
	Logger  *slog.Logger
}

// dispatcher is what both plugins have in common.
type dispatcher struct {
	Config
	sort    string
	hooks   *configurations
	clients *clients
	stop    context.CancelFunc
	probes  *sync.WaitGroup
}

func newDispatcher(c Config, sort string, hooksOf func(metav1.Object) []webhook) (*dispatcher, error) {
	ctx, stop := context.WithCancel(context.Background())
	d := &dispatcher{Config: c, sort: sort, stop: stop, probes: &sync.WaitGroup{}}
	var err error
	d.clients, err = newClients(&c, breakers{ctx: ctx, probes: d.probes, notify: c.Notify, metrics: c.Metrics, sort: sort, log: c.Logger})
	if err != nil {
		stop()
		return nil, err
	}
	d.hooks = &configurations{
		source: c.Configurations, hooksOf: hooksOf, compiler: c.Compiler, family: c.Family, clients: d.clients, log: c.Logger, made: map[string]*compiled{},
	}
	if c.Metrics != nil {
		c.Metrics.keepWhileConfigured(sort, d.hooks.names)
	}
	return d, nil
}

// Close ends probes and lets go of connections.
func (d *dispatcher) Close() {
	d.stop()
	d.clients.retain(nil)
	d.probes.Wait()
}

// Mutating is the plugin of mutating webhooks.
type Mutating struct{ *dispatcher }

// NewMutating makes the plugin. It has to be closed.
func NewMutating(c Config) (*Mutating, error) {
	d, err := newDispatcher(c, sortMutating, func(o metav1.Object) []webhook {
		if m, ok := o.(*admissionv1.MutatingWebhookConfiguration); ok {
			return mutatingHooks(m)
		}
		return nil
	})
	return &Mutating{d}, err
}

// Validating is the plugin of validating webhooks.
type Validating struct{ *dispatcher }

// NewValidating makes the plugin. It has to be closed.
func NewValidating(c Config) (*Validating, error) {
	d, err := newDispatcher(c, sortValidating, func(o metav1.Object) []webhook {
		if v, ok := o.(*admissionv1.ValidatingWebhookConfiguration); ok {
			return validatingHooks(v)
		}
		return nil
	})
	return &Validating{d}, err
}

// candidates are the hooks whose rules match a request.
func (d *dispatcher) candidates(ctx context.Context, r *admission.Request) ([]matcher.Candidate[*hook], error) {
	if matcher.Exempt(r) || request.Startup(ctx) {
		return nil, nil
	}
	ready := d.Ready()
	if err := d.Configurations.Seen(ctx); err != nil {
		return nil, err
	}
	if !ready && !d.Ready() { // what was acknowledged may have mended it
		return nil, r.Forbiddenf("not yet ready to handle request")
	}
	hooks, err := d.hooks.get()
	if err != nil {
		return nil, r.Forbiddenf("not yet ready to handle request")
	}
	return hooks.Candidates(r), nil
}

// Asks implements admission.Outsider.
func (d *dispatcher) Asks(ctx context.Context, r *admission.Request) bool {
	found, err := d.candidates(ctx, r)
	return err == nil && len(found) > 0 // an error is met again
}

// views of a request.
func (d *dispatcher) views(ctx context.Context, r *admission.Request) *views.Views {
	return views.Of(ctx, d.Codec, d.Shapes, r, func() []*apiset.Resource { return d.Family(r.Resource) })
}

// selects tells whether a hook is asked about a request, and shows it to the hook.
func (d *dispatcher) selects(ctx context.Context, c *matcher.Candidate[*hook], r *admission.Request, v *views.Views) (matcher.As, *views.View, error) {
	as, ok, err := c.Selects(ctx, r, v.Object(), d.Namespaces)
	if err != nil || !ok {
		return as, nil, err
	}
	view, err := v.In(as.Kind)
	if err != nil {
		return as, nil, err
	}
	h := c.Value
	if h.conditions == nil {
		return as, view, nil
	}
	begin := time.Now()
	subject := matcher.InputOf(ctx, r, view, as, d.Authorizer)
	ok, _, err = h.conditions.Hold(r.Metered(ctx), &subject.Input)
	d.Metrics.evaluated(h.name, d.sort, r.Operation, time.Since(begin))
	switch {
	case subject.Err != nil:
		return as, nil, apierrors.NewInternalError(subject.Err)
	case err != nil:
		return as, nil, apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, err)
	case !ok:
		d.Metrics.excluded(h.name, d.sort, r.Operation)
		return as, nil, nil
	}
	return as, view, nil
}

// account counts what came of asking a hook.
func (d *dispatcher) account(h *hook, r *admission.Request, begin time.Time, err error) {
	took := time.Since(begin)
	switch e := err.(type) {
	case nil:
		d.Metrics.observe(h.name, d.sort, r.Operation, took, false, 200)
	case *failure:
		if !h.ignore {
			d.Metrics.rejected(h.name, d.sort, r.Operation, errorCalling, e.code)
		} else {
			d.Metrics.failedOpen(h.name, d.sort)
		}
		d.Metrics.observe(h.name, d.sort, r.Operation, took, !h.ignore, e.code)
	case *denial:
		d.Metrics.rejected(h.name, d.sort, r.Operation, noError, int(e.status.ErrStatus.Code))
		d.Metrics.observe(h.name, d.sort, r.Operation, took, true, int(e.status.ErrStatus.Code))
	default:
		d.Metrics.rejected(h.name, d.sort, r.Operation, errorInternal, 0)
		d.Metrics.observe(h.name, d.sort, r.Operation, took, true, 0)
	}
}

// tell passes on what a webhook says beside its verdict.
func tell(ctx context.Context, h *hook, r *admission.Request, v *verdict) {
	if v == nil {
		return
	}
	for key, value := range v.auditAnnotations {
		r.Annotate(h.name+"/"+key, value)
	}
	for _, w := range v.warnings {
		if !strings.ContainsFunc(w, unicode.IsControl) { // else it cannot be told
			request.Warn(ctx, w)
		}
	}
}

// outOfTime is the refusal of a request whose time is over.
func outOfTime() error {
	return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
}

// unsupported refuses a dry run that a webhook may not see.
func unsupported(h *hook) error {
	return &denial{apierrors.NewBadRequest("admission webhook \"" + h.name + "\" does not support dry run")}
}

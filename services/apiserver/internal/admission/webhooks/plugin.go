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
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
)

// Names of the plugins.
const (
	MutatingName   = "MutatingAdmissionWebhook"
	ValidatingName = "ValidatingAdmissionWebhook"
)

// Config configures both plugins.
type Config struct {
	// Configurations provides the webhook configurations.
	Configurations admission.Source
	// Ready reports whether the configurations are loaded.
	Ready func() bool
	// Family, Namespaces and Authorizer are used to match requests.
	Family     matcher.Family
	Namespaces matcher.Namespaces
	Authorizer authorizer.Authorizer
	// Compiler is called when it is first needed.
	Compiler func() (*expressions.Compiler, error)
	Codec    *codec.Codec
	// StructEncodings caches the decoding of kinds across requests.
	StructEncodings *views.StructEncodings
	// Credentials, Services and Dialers configure the connections to webhooks.
	Credentials *Credentials
	Services    *webhookclient.Services
	Dialers     webhookclient.Dialers
	Calls       *webhookclient.Metrics // may be nil
	// Responses bounds concurrent large responses; nil means no limit.
	Responses *webhookclient.ResponseLimiter
	// Notify is called, in a separate goroutine, when a webhook becomes unreachable or reachable.
	Notify  func(context.Context, ReachabilityEvent)
	Metrics *Metrics
	Logger  *slog.Logger
}

// dispatcher holds what both plugins share.
type dispatcher struct {
	Config
	hookType string
	hooks    *configurations
	clients  *clients
	stop     context.CancelFunc
	probes   *sync.WaitGroup
}

// newDispatcher returns the part that validating and mutating webhooks share.
func newDispatcher(c Config, hookType string, hooksOf func(metav1.Object) []webhook) (*dispatcher, error) {
	ctx, stop := context.WithCancel(context.Background())
	d := &dispatcher{Config: c, hookType: hookType, stop: stop, probes: &sync.WaitGroup{}}
	var err error
	d.clients, err = newClients(&c, breakers{ctx: ctx, probes: d.probes, notify: c.Notify, metrics: c.Metrics, hookType: hookType, log: c.Logger})
	if err != nil {
		stop()
		return nil, err
	}
	d.hooks = &configurations{
		source: c.Configurations, hooksOf: hooksOf, compiler: c.Compiler, family: c.Family, clients: d.clients, log: c.Logger,
	}
	d.hooks.compiled = lister.Compiled[[]*hook]{Store: c.Configurations.Store, Compile: d.hooks.compile, OnInvalid: d.hooks.unreadable}
	if c.Metrics != nil {
		c.Metrics.keepWhileConfigured(hookType, d.hooks.names)
	}
	return d, nil
}

// Close stops probes and closes idle connections.
func (d *dispatcher) Close() {
	d.stop()
	d.clients.retain(nil)
	d.probes.Wait()
}

// Mutating is the plugin of mutating webhooks.
type Mutating struct{ *dispatcher }

// NewMutating creates the plugin. The caller must close it.
func NewMutating(c Config) (*Mutating, error) {
	d, err := newDispatcher(c, typeMutating, func(o metav1.Object) []webhook {
		if m, ok := o.(*admissionv1.MutatingWebhookConfiguration); ok {
			return mutatingHooks(m)
		}
		return nil
	})
	return &Mutating{d}, err
}

// Validating is the plugin of validating webhooks.
type Validating struct{ *dispatcher }

// NewValidating creates the plugin. The caller must close it.
func NewValidating(c Config) (*Validating, error) {
	d, err := newDispatcher(c, typeValidating, func(o metav1.Object) []webhook {
		if v, ok := o.(*admissionv1.ValidatingWebhookConfiguration); ok {
			return validatingHooks(v)
		}
		return nil
	})
	return &Validating{d}, err
}

// candidates returns the hooks whose rules match a request.
func (d *dispatcher) candidates(ctx context.Context, r *admission.Request) ([]matcher.Candidate[*hook], error) {
	if matcher.Exempt(r) || request.FromContext(ctx).Startup {
		return nil, nil
	}
	ready := d.Ready()
	if err := d.Configurations.WaitForWrites(ctx); err != nil {
		return nil, err
	}
	if !ready && !d.Ready() { // the acknowledged writes may have fixed an unreadable configuration
		return nil, r.Forbiddenf("not yet ready to handle request")
	}
	hooks, err := d.hooks.get()
	if err != nil {
		return nil, r.Forbiddenf("not yet ready to handle request")
	}
	return hooks.Candidates(r), nil
}

// CallsExternal implements admission.ExternalCaller.
func (d *dispatcher) CallsExternal(ctx context.Context, r *admission.Request) bool {
	found, err := d.candidates(ctx, r)
	return err == nil && len(found) > 0 // the phases of the chain return the error
}

// views returns the views of a request.
func (d *dispatcher) views(ctx context.Context, r *admission.Request) *views.Views {
	return views.NewViews(ctx, d.Codec, d.StructEncodings, r, func() []*apiset.Resource { return d.Family(r.Resource) })
}

// selects returns the view of a request for a hook, or nil if the hook does not select it.
func (d *dispatcher) selects(ctx context.Context, c *matcher.Candidate[*hook], r *admission.Request, requestViews *views.Views) (matcher.MatchedKind, *views.View, error) {
	as, ok, err := c.Selects(ctx, r, requestViews.Object(), d.Namespaces)
	if err != nil || !ok {
		return as, nil, err
	}
	view, err := requestViews.ForKind(as.Kind)
	if err != nil {
		return as, nil, err
	}
	h := c.Value
	if h.conditions == nil {
		return as, view, nil
	}
	start := time.Now()
	subject := matcher.NewExpressionInput(ctx, r, view, as, d.Authorizer)
	ok, _, err = h.conditions.Match(r.Metered(ctx), &subject.Input)
	d.Metrics.evaluated(h.name, d.hookType, r.Operation, time.Since(start))
	switch {
	case subject.Err != nil:
		return as, nil, apierrors.NewInternalError(subject.Err)
	case err != nil:
		return as, nil, apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, err)
	case !ok:
		d.Metrics.excluded(h.name, d.hookType, r.Operation)
		return as, nil, nil
	}
	return as, view, nil
}

// observe records the metrics of a call.
func (d *dispatcher) observe(h *hook, r *admission.Request, start time.Time, err error) {
	took := time.Since(start)
	switch e := err.(type) {
	case nil:
		d.Metrics.observe(h.name, d.hookType, r.Operation, took, false, 200)
	case *failure:
		if !h.ignore {
			d.Metrics.rejected(h.name, d.hookType, r.Operation, errorCalling, e.code)
		} else {
			d.Metrics.failedOpen(h.name, d.hookType)
		}
		d.Metrics.observe(h.name, d.hookType, r.Operation, took, !h.ignore, e.code)
	case *denial:
		d.Metrics.rejected(h.name, d.hookType, r.Operation, noError, int(e.status.ErrStatus.Code))
		d.Metrics.observe(h.name, d.hookType, r.Operation, took, true, int(e.status.ErrStatus.Code))
	default:
		d.Metrics.rejected(h.name, d.hookType, r.Operation, errorInternal, 0)
		d.Metrics.observe(h.name, d.hookType, r.Operation, took, true, 0)
	}
}

// recordExtras adds the audit annotations and warnings of a response.
func recordExtras(ctx context.Context, h *hook, r *admission.Request, response *reviewResponse) {
	if response == nil {
		return
	}
	for key, value := range response.auditAnnotations {
		r.Annotate(h.name+"/"+key, value)
	}
	for _, w := range response.warnings {
		if !strings.ContainsFunc(w, unicode.IsControl) { // otherwise the warning is not a valid header
			request.Warn(ctx, w)
		}
	}
}

// timeoutError is the error of a request whose deadline has passed.
func timeoutError() error {
	return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
}

// dryRunUnsupported rejects a dry run for a webhook with side effects.
func dryRunUnsupported(h *hook) error {
	return &denial{apierrors.NewBadRequest("admission webhook \"" + h.name + "\" does not support dry run")}
}

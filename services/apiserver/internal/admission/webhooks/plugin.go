package webhooks

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

// Config holds the dependencies of the mutating or the validating plugin.
type Config struct {
	// Configurations provides the webhook configurations.
	Configurations admission.Source
	// Ready reports whether the configurations are loaded.
	Ready func() bool
	// Family, Namespaces and Authorizer are used to match requests.
	Family     matcher.Family
	Namespaces matcher.Namespaces
	Authorizer authorizer.Authorizer
	// Compiler returns the compiler for match conditions. It is expensive to create, so Compiler is
	// not called before a webhook with conditions is compiled.
	Compiler func() (*expressions.Compiler, error)
	Codec    *codec.Codec
	// StructEncodings caches how Go structs are encoded. All requests share it.
	StructEncodings *views.StructEncodings
	// Credentials, Services and Dialers configure the connections to webhooks.
	Credentials *Credentials
	Services    *webhookclient.Services
	Dialers     webhookclient.Dialers
	Calls       *webhookclient.Metrics // may be nil
	// Responses bounds concurrent large responses; nil means no limit.
	Responses *webhookclient.ResponseLimiter
	// Notify is called, in a separate goroutine, when a webhook becomes unreachable or reachable
	// again.
	Notify  func(context.Context, ReachabilityEvent)
	Metrics *Metrics
	Logger  *slog.Logger
}

// dispatcher is the common part of the plugins Mutating and Validating. It determines the hooks to
// call.
type dispatcher struct {
	Config
	hookType       string // typeMutating or typeValidating
	configurations *configurations
	clients        *clients
	stop           context.CancelFunc // stops probes
	probes         *sync.WaitGroup    // running probes
}

// newDispatcher returns a dispatcher for a type of hooks. hooksOf returns the webhooks of a decoded
// configuration.
func newDispatcher(config Config, hookType string, hooksOf func(metav1.Object) []webhook) (*dispatcher, error) {
	ctx, stop := context.WithCancel(context.Background())
	out := &dispatcher{Config: config, hookType: hookType, stop: stop, probes: &sync.WaitGroup{}}
	var err error
	out.clients, err = newClients(&config, breakerFactory{
		ctx: ctx, probes: out.probes, notify: config.Notify, metrics: config.Metrics, hookType: hookType, log: config.Logger,
	})
	if err != nil {
		stop()
		return nil, err
	}
	out.configurations = &configurations{
		source: config.Configurations, hooksOf: hooksOf, compiler: config.Compiler, family: config.Family, clients: out.clients, log: config.Logger,
	}
	out.configurations.compiled = lister.Compiled[[]*hook]{
		Store:     config.Configurations.Store,
		Compile:   out.configurations.compile,
		OnInvalid: out.configurations.logCorrupt,
	}
	if config.Metrics != nil {
		config.Metrics.keepWhileConfigured(hookType, out.configurations.names)
	}
	return out, nil
}

// Close stops probes, waits for them, and closes idle connections.
func (d *dispatcher) Close() {
	d.stop()
	d.clients.retain(nil)
	d.probes.Wait()
}

// Mutating is the plugin that calls mutating webhooks.
type Mutating struct{ *dispatcher }

// NewMutating returns the plugin. The caller must close it.
func NewMutating(c Config) (*Mutating, error) {
	dispatcher, err := newDispatcher(c, typeMutating, func(o metav1.Object) []webhook {
		if m, ok := o.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
			return mutatingWebhooks(m)
		}
		return nil
	})
	return &Mutating{dispatcher}, err
}

// Validating is the plugin that calls validating webhooks.
type Validating struct{ *dispatcher }

// NewValidating returns the plugin. The caller must close it.
func NewValidating(c Config) (*Validating, error) {
	dispatcher, err := newDispatcher(c, typeValidating, func(o metav1.Object) []webhook {
		if v, ok := o.(*admissionregistrationv1.ValidatingWebhookConfiguration); ok {
			return validatingWebhooks(v)
		}
		return nil
	})
	return &Validating{dispatcher}, err
}

// candidates returns the hooks whose rules match a request. It returns none for requests with
// request.State.Startup, which the server sends to itself before it becomes ready.
func (d *dispatcher) candidates(ctx context.Context, req *admission.Request) ([]matcher.Candidate[*hook], error) {
	if matcher.Exempt(req) || request.FromContext(ctx).Startup {
		return nil, nil
	}
	// Ready is called before and after WaitForWrites, because the acknowledged writes may replace a
	// corrupt configuration.
	ready := d.Ready()
	if err := d.Configurations.WaitForWrites(ctx); err != nil {
		return nil, err
	}
	if !ready && !d.Ready() {
		return nil, req.Forbiddenf("not yet ready to handle request")
	}
	hooks, err := d.configurations.hooks()
	if err != nil {
		return nil, req.Forbiddenf("not yet ready to handle request")
	}
	return hooks.Candidates(req), nil
}

// CallsExternal implements admission.ExternalCaller.
func (d *dispatcher) CallsExternal(ctx context.Context, r *admission.Request) bool {
	found, err := d.candidates(ctx, r)
	return err == nil && len(found) > 0 // Admit and Validate return the error
}

// views returns the views of a request's objects in other versions.
func (d *dispatcher) views(ctx context.Context, r *admission.Request) *views.Views {
	return views.NewViews(ctx, d.Codec, d.StructEncodings, r, func() []*apiset.Resource { return d.Family(r.Resource) })
}

// selectedView returns the version in which a hook sees a request, and the view of its objects. The
// view is nil if the selectors or conditions of the hook do not match. An error is a Status.
func (d *dispatcher) selectedView(
	ctx context.Context,
	candidate *matcher.Candidate[*hook],
	req *admission.Request,
	requestViews *views.Views,
) (matcher.MatchedKind, *views.View, error) {
	matchedKind, ok, err := candidate.Selects(ctx, req, requestViews.Object(), d.Namespaces)
	if err != nil || !ok {
		return matchedKind, nil, err
	}
	view, err := requestViews.ForKind(matchedKind.Kind)
	if err != nil {
		return matchedKind, nil, err
	}
	webhook := candidate.Value
	if webhook.conditions == nil {
		return matchedKind, view, nil
	}
	start := time.Now()
	in := matcher.NewExpressionInput(ctx, req, view, matchedKind, d.Authorizer)
	ok, _, err = webhook.conditions.Match(req.Metered(ctx), &in.Input)
	d.Metrics.observeConditions(webhook.name, d.hookType, req.Operation, time.Since(start))
	switch {
	case in.Err != nil:
		return matchedKind, nil, apierrors.NewInternalError(in.Err)
	case err != nil:
		return matchedKind, nil, apierrors.NewForbidden(req.Resource.GroupResource(), req.Name, err)
	case !ok:
		d.Metrics.observeExclusion(webhook.name, d.hookType, req.Operation)
		return matchedKind, nil, nil
	}
	return matchedKind, view, nil
}

// observe records the metrics of a call that began at start and returned err.
func (d *dispatcher) observe(webhook *hook, req *admission.Request, start time.Time, err error) {
	took := time.Since(start)
	switch e := err.(type) {
	case nil:
		d.Metrics.observeCall(webhook.name, d.hookType, req.Operation, took, false, 200)
	case *failure:
		if !webhook.ignore {
			d.Metrics.observeRejection(webhook.name, d.hookType, req.Operation, errorCalling, e.code)
		} else {
			d.Metrics.observeFailOpen(webhook.name, d.hookType)
		}
		d.Metrics.observeCall(webhook.name, d.hookType, req.Operation, took, !webhook.ignore, e.code)
	case *denial:
		d.Metrics.observeRejection(webhook.name, d.hookType, req.Operation, noError, int(e.status.ErrStatus.Code))
		d.Metrics.observeCall(webhook.name, d.hookType, req.Operation, took, true, int(e.status.ErrStatus.Code))
	default:
		d.Metrics.observeRejection(webhook.name, d.hookType, req.Operation, errorInternal, 0)
		d.Metrics.observeCall(webhook.name, d.hookType, req.Operation, took, true, 0)
	}
}

// addAnnotationsAndWarnings adds the audit annotations of a response, which may be nil, to the
// request, and its warnings to the response to the client.
func addAnnotationsAndWarnings(ctx context.Context, h *hook, req *admission.Request, response *reviewResponse) {
	if response == nil {
		return
	}
	for key, value := range response.auditAnnotations {
		req.Annotate(h.name+"/"+key, value)
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

// dryRunUnsupported returns the rejection of a dry run because the webhook may have side effects.
func dryRunUnsupported(h *hook) error {
	return &denial{status: apierrors.NewBadRequest("admission webhook \"" + h.name + "\" does not support dry run")}
}

package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// maxQueue bounds the waiting spans, maxBatch the spans per export.
	maxQueue = 2048
	maxBatch = 512
	// batchInterval is how long a span waits for a batch. exportTimeout bounds an export.
	batchInterval = 5 * time.Second
	exportTimeout = 10 * time.Second
	// flushTimeout bounds the wait in Close.
	flushTimeout = 5 * time.Second
	// maxValue and maxName bound the texts of a span, in bytes: callers choose many of them.
	maxValue = 4 << 10
	maxName  = 256
)

// scope is the instrumentation scope of the spans.
const scope = "binnacle"

// Config configures a Provider.
type Config struct {
	*Configuration
	// Service and Instance identify the process to the collector.
	Service, Instance string
	Logger            *slog.Logger
	Metrics           prometheus.Registerer
	// Dial connects to the collector; nil connects directly.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Provider creates spans. A nil Provider creates none.
type Provider struct {
	// roots samples the first spans of traces by the rate, inner samples none of them.
	roots, inner *sdk.TracerProvider
	exporter     *exporter
}

// New returns a provider. The collector need not be reachable. Without a Configuration it returns
// nil.
func New(ctx context.Context, config Config) (*Provider, error) {
	if config.Configuration == nil {
		return nil, nil
	}
	endpoint := defaultEndpoint
	if config.Endpoint != nil {
		endpoint = *config.Endpoint
	}
	otlp, err := otlptrace.New(ctx, newClient(endpoint, config.Dial))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_tracing_spans_total",
		Help: "Spans by outcome: ended, exported or lost. Ended spans that are neither exported nor lost wait in the queue or were dropped because it was full.",
	}, []string{"stage"})
	if err := config.Metrics.Register(counts); err != nil {
		return nil, fmt.Errorf("traces: metrics: %w", err)
	}
	e := &exporter{next: otlp, log: config.Logger, exported: counts.WithLabelValues("exported"), lost: counts.WithLabelValues("lost")}
	e.exportCtx, e.cancelExports = context.WithCancel(context.WithoutCancel(ctx))
	batches := sdk.NewBatchSpanProcessor(e,
		sdk.WithMaxQueueSize(maxQueue),
		sdk.WithMaxExportBatchSize(maxBatch),
		sdk.WithBatchTimeout(batchInterval),
		sdk.WithExportTimeout(exportTimeout),
	)
	queue := endCounter{SpanProcessor: batches, ended: counts.WithLabelValues("ended")}
	res := resource.NewSchemaless(attribute.String("service.name", config.Service),
		attribute.String("service.instance.id", config.Instance))
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValue
	newProvider := func(root sdk.Sampler) *sdk.TracerProvider {
		return sdk.NewTracerProvider(
			sdk.WithSampler(sdk.ParentBased(root)),
			sdk.WithSpanProcessor(queue),
			sdk.WithResource(res),
			sdk.WithRawSpanLimits(limits),
		)
	}
	rate := sdk.NeverSample()
	if r := config.SamplingRatePerMillion; r != nil && *r > 0 {
		rate = sdk.TraceIDRatioBased(float64(*r) / million)
	}
	return &Provider{roots: newProvider(rate), inner: newProvider(sdk.NeverSample()), exporter: e}, nil
}

// ChildrenOnly returns a provider that creates spans only below a sampled parent, or nil without a
// provider.
func (p *Provider) ChildrenOnly() trace.TracerProvider {
	if p == nil {
		return nil
	}
	return p.inner
}

// Close sends the waiting spans, within flushTimeout.
func (p *Provider) Close() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	err := p.roots.Shutdown(ctx)
	p.exporter.cancelExports()
	if err != nil {
		p.exporter.log.Warn("failed to export all spans at shutdown", "error", err)
	}
	p.exporter.closeOnce()
}

// endCounter counts the sampled spans that end.
type endCounter struct {
	sdk.SpanProcessor
	ended prometheus.Counter
}

// OnEnd implements sdk.SpanProcessor.
func (c endCounter) OnEnd(s sdk.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.ended.Inc()
	}
	c.SpanProcessor.OnEnd(s)
}

// exporter logs when the collector starts to fail and when it recovers. The library's own error
// handler is global to the process.
type exporter struct {
	next           sdk.SpanExporter
	log            *slog.Logger
	exported, lost prometheus.Counter
	exportCtx      context.Context // ends exports in progress when Close gives up waiting for them
	cancelExports  context.CancelFunc
	failing        bool // used by the goroutine of the queue only
	closeGuard     sync.Once
}

// ExportSpans implements sdk.SpanExporter. Calls do not overlap.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.exportCtx, cancel)()
	err := e.next.ExportSpans(ctx, spans)
	if err != nil {
		e.lost.Add(float64(len(spans)))
		if !e.failing {
			e.log.Warn("failed to export spans to the trace collector", "error", err)
		}
	} else {
		e.exported.Add(float64(len(spans)))
		if e.failing {
			e.log.Info("trace collector accepts spans again")
		}
	}
	e.failing = err != nil
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.closeOnce()
	return nil
}

// closeOnce closes the connection.
func (e *exporter) closeOnce() {
	e.closeGuard.Do(func() {
		if err := e.next.Shutdown(context.Background()); err != nil {
			e.log.Debug("failed to close the connection to the trace collector", "error", err)
		}
	})
}

// propagator propagates traces between services (W3C Trace Context). Baggage is forwarded as in
// Kubernetes.
var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// Propagator returns the propagator that writes traces to headers and reads them.
func Propagator() propagation.TextMapPropagator { return propagator }

// StartBackground starts a span for background work: below the span of ctx, or as the first of a
// trace, sampled by the rate. Without a provider it returns ctx.
func (p *Provider) StartBackground(ctx context.Context, name func() string) (context.Context, Span) {
	if p == nil {
		return ctx, Span{}
	}
	ctx, s := p.roots.Tracer(scope).Start(ctx, name())
	return ctx, Span{s}
}

// Inject writes the trace of ctx, if any, to the headers of an outgoing request, replacing existing
// ones.
func (p *Provider) Inject(ctx context.Context, h http.Header) {
	if p != nil && trace.SpanContextFromContext(ctx).IsValid() {
		propagator.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// Start starts a span below the span of ctx. Without tracing it costs one lookup in ctx and returns
// ctx. attributes is called only if the span is sampled.
func Start(ctx context.Context, name string, attributes func() []attribute.KeyValue) (context.Context, Span) {
	return StartAt(ctx, name, time.Time{}, attributes)
}

// StartAt starts a span at a time; the zero time means now.
func StartAt(ctx context.Context, name string, at time.Time, attributes func() []attribute.KeyValue) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	var opts []trace.SpanStartOption
	if !at.IsZero() {
		opts = append(opts, trace.WithTimestamp(at))
	}
	if attributes != nil {
		opts = append(opts, trace.WithAttributes(attributes()...))
	}
	ctx, s := parent.TracerProvider().Tracer(scope).Start(ctx, name, opts...)
	return ctx, Span{s}
}

// Event adds an event to the span of ctx, if that is sampled.
func Event(ctx context.Context, name string, attributes ...attribute.KeyValue) {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		s.AddEvent(name, trace.WithAttributes(attributes...))
	}
}

// Recording reports whether the span of ctx is sampled.
func Recording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Span is a running span. The zero Span does nothing.
type Span struct{ span trace.Span }

// Recording reports whether the span is sampled.
func (s Span) Recording() bool { return s.span != nil && s.span.IsRecording() }

// EventAt adds an event with a time.
func (s Span) EventAt(name string, at time.Time, attributes ...attribute.KeyValue) {
	if s.span != nil {
		s.span.AddEvent(name, trace.WithAttributes(attributes...), trace.WithTimestamp(at))
	}
}

// Event adds an event.
func (s Span) Event(name string, attributes ...attribute.KeyValue) {
	if s.span != nil {
		s.span.AddEvent(name, trace.WithAttributes(attributes...))
	}
}

// Fail records an error; nil is ignored.
func (s Span) Fail(err error) {
	if s.span != nil && err != nil {
		s.span.RecordError(err)
	}
}

// End ends the span.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

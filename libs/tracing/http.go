package tracing

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"binnacle/libs/serving/exchange"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Incoming configures the spans of requests.
type Incoming struct {
	// Name returns the name of a span; nil uses the method.
	Name func(*http.Request) string
	// Follow reports whether the span continues the trace that the request brings, or the
	// span that the context of the request has. That trace decides whether the span is
	// sampled. Any other span starts a trace, and links to the one that the request brings.
	// Follow is called only if there is a trace. If nil, no trace is continued.
	Follow func(*http.Request) bool
	// Start returns when the request arrived, which is where the span starts. If nil, the
	// span starts when the handler is called.
	Start func(*http.Request) time.Time
}

// Handler creates a span for each request. Without a provider it returns next.
func (p *Provider) Handler(in Incoming, next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	tracer := p.roots.Tracer(scope)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Method
		if in.Name != nil {
			name = in.Name(r)
		}
		name = name[:min(len(name), maxName)]
		ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
		parent := trace.SpanContextFromContext(ctx)
		if !parent.IsValid() || in.Follow == nil || !in.Follow(r) {
			opts = append(opts, trace.WithNewRoot())
			if parent.IsValid() && parent.IsRemote() {
				opts = append(opts, trace.WithLinks(trace.Link{SpanContext: parent}))
			}
		}
		if in.Start != nil {
			opts = append(opts, trace.WithTimestamp(in.Start(r)))
		}
		ctx, span := tracer.Start(ctx, name, opts...)
		r = r.WithContext(ctx)
		if !span.IsRecording() {
			next.ServeHTTP(w, r)
			return
		}
		span.SetAttributes(requestAttributes(r)...)
		written := &exchange.Recorder{ResponseWriter: w}
		defer func() {
			code := written.Code
			if code == 0 {
				code = http.StatusOK
			}
			span.SetAttributes(attribute.Int("http.status_code", code), attribute.Int64("http.response_content_length", written.Bytes))
			if code >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
			span.End() // also after a panic, which records nothing else
		}()
		next.ServeHTTP(written, r)
	})
}

// requestAttributes returns the attributes of a request, under the names of Kubernetes.
func requestAttributes(r *http.Request) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("http.method", r.Method), attribute.String("http.scheme", "https"),
		attribute.String("net.protocol.version", strconv.Itoa(r.ProtoMajor)+"."+strconv.Itoa(r.ProtoMinor)),
		attribute.String("http.target", r.URL.RequestURI()),
	}
	out = append(out, hostAttributes("net.host.name", "net.host.port", r.Host)...)
	out = append(out, hostAttributes("net.sock.peer.addr", "net.sock.peer.port", r.RemoteAddr)...)
	if agent := r.UserAgent(); agent != "" {
		out = append(out, attribute.String("user_agent.original", agent))
	}
	if r.ContentLength > 0 {
		out = append(out, attribute.Int64("http.request_content_length", r.ContentLength))
	}
	return out
}

// hostAttributes returns the attributes host and port with the parts of hostPort, which may lack a
// port.
func hostAttributes(host, port, hostPort string) []attribute.KeyValue {
	name, number, err := net.SplitHostPort(hostPort)
	if err != nil {
		return []attribute.KeyValue{attribute.String(host, strings.Trim(hostPort, "[]"))}
	}
	out := []attribute.KeyValue{attribute.String(host, name)}
	if n, err := strconv.Atoi(number); err == nil {
		out = append(out, attribute.Int(port, n))
	}
	return out
}

// Transport creates a span for each outgoing request within a traced one, and propagates the trace.
// Without a provider it returns next.
func (p *Provider) Transport(next http.RoundTripper) http.RoundTripper {
	if p == nil {
		return next
	}
	return &transport{next, p.inner.Tracer(scope), false}
}

// Client returns a transport like Transport, which also traces requests of the service's background
// work. Such a request starts a trace, sampled by the rate.
func (p *Provider) Client(next http.RoundTripper) http.RoundTripper {
	if p == nil {
		return next
	}
	return &transport{next, p.roots.Tracer(scope), true}
}

// transport records a span for each request. roots allows spans without a parent.
type transport struct {
	next       http.RoundTripper
	tracer     trace.Tracer
	allowRoots bool
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.allowRoots && !trace.SpanContextFromContext(r.Context()).IsValid() {
		return t.next.RoundTrip(r)
	}
	ctx, span := t.tracer.Start(r.Context(), "HTTP "+r.Method, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End() // when the response starts: reading it may never end
	r = r.Clone(ctx)
	propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	if span.IsRecording() {
		span.SetAttributes(attribute.String("http.method", r.Method), attribute.String("http.url", r.URL.Redacted()))
		span.SetAttributes(hostAttributes("net.peer.name", "net.peer.port", r.URL.Host)...)
	}
	resp, err := t.next.RoundTrip(r)
	switch {
	case err != nil:
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	default:
		span.SetAttributes(attribute.Int("http.status_code", resp.StatusCode))
		if resp.StatusCode >= http.StatusBadRequest {
			span.SetStatus(codes.Error, "")
		}
	}
	return resp, err
}

// WrappedRoundTripper returns the wrapped transport.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections supports http.Client.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

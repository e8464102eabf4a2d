package telemetry

import (
	"context"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// WithTracing creates a span for each authenticated request. Privileged users continue their own
// traces. Every other client starts a trace, which links to the one that the client names
// (Kubernetes: "Traces For Kubernetes System Components").
func (f *Filters) WithTracing(next http.Handler) http.Handler {
	return f.Traces.Handler(tracing.Incoming{Name: spanName, Follow: privileged, Start: func(r *http.Request) time.Time {
		return request.FromContext(r.Context()).Received
	}}, next)
}

// Groups whose members decide whether their requests are traced.
const (
	mastersGroup    = "system:masters"
	monitoringGroup = "system:monitoring"
)

// privileged reports whether the user that authenticated may continue a trace. Impersonation
// does not change the answer.
func privileged(r *http.Request) bool {
	u := request.UserFrom(r.Context())
	return u != nil && (slices.Contains(u.Groups, mastersGroup) || slices.Contains(u.Groups, monitoringGroup))
}

func spanName(r *http.Request) string {
	if op := requestinfo.FromContext(r.Context()); op != nil {
		return op.Pattern()
	}
	return r.Method
}

// BeginAuthenticationSpan starts the span of authentication. The span has no parent, because the
// trace of an unauthenticated client is not trusted.
func (f *Filters) BeginAuthenticationSpan(ctx context.Context) (context.Context, tracing.Span) {
	return f.Traces.StartBackground(ctx, func() string { return "authentication" })
}

// BeginSpan starts the span of a filter.
func (f *Filters) BeginSpan(ctx context.Context, name string) (context.Context, tracing.Span) {
	if f.Traces == nil {
		return ctx, tracing.Span{}
	}
	return tracing.Start(ctx, name, nil)
}

// operationNames holds the names of operation spans by verb. A watch has no such span.
var operationNames = map[string]string{
	"get": "Get", "list": "List", "create": "Create", "update": "Update", "patch": "Patch", "delete": "Delete", "deletecollection": "Delete",
}

// WithOperationSpan creates a span for the operation of an authorized request.
func (f *Filters) WithOperationSpan(next http.Handler) http.Handler {
	if f.Traces == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := requestinfo.FromContext(r.Context())
		name := operationNames[op.Verb]
		if name == "" || op.Target == nil || op.LongRunning() {
			next.ServeHTTP(w, r)
			return
		}
		ctx, span := tracing.Start(r.Context(), name, func() (out []attribute.KeyValue) {
			for _, f := range operationFields(w, r, op) {
				out = append(out, attribute.String(f.name, f.value))
			}
			return out
		})
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// field is an attribute of an operation in spans and the slow log.
type field struct{ name, value string }

// maxFieldValue is the maximum size in bytes of a header value in a field.
const maxFieldValue = 1024

func truncated(header string) string {
	if len(header) > maxFieldValue {
		return header[:maxFieldValue] + "...TRUNCATED"
	}
	return header
}

// operationFields returns the attributes of an operation, named as in Kubernetes.
func operationFields(w http.ResponseWriter, r *http.Request, op *requestinfo.Info) []field {
	scope := "cluster"
	switch {
	case op.Name != "", op.Verb == "create":
		scope = "resource"
	case op.Namespace != "":
		scope = "namespace"
	}
	verb := verbs[op.Verb]
	if op.Verb == "patch" && isApply(r) {
		verb = "APPLY"
	}
	client := "unknown"
	if ip := utilnet.GetClientIP(r); ip != nil {
		client = ip.String()
	}
	id := w.Header().Get("Audit-Id")
	return []field{
		{"accept", truncated(r.Header.Get("Accept"))}, {"audit-id", id[:min(len(id), request.MaxTracedID)]}, {"client", client},
		{"api-group", op.Group}, {"api-version", op.Version}, {"name", op.Name}, {"subresource", op.Subresource}, {"namespace", op.Namespace},
		{"protocol", r.Proto}, {"resource", op.Resource}, {"scope", scope}, {"url", truncated(r.URL.Path)}, {"user-agent", truncated(r.UserAgent())}, {"verb", verb},
	}
}

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
// traces. Every other client starts a new trace with a link to the trace that it names
// (Kubernetes: "Traces For Kubernetes System Components").
func (f *Filters) WithTracing(next http.Handler) http.Handler {
	incoming := tracing.Incoming{
		Name:   spanName,
		Follow: mayContinueTrace,
		Start:  func(r *http.Request) time.Time { return request.FromContext(r.Context()).Received },
	}
	return f.Traces.Handler(incoming, next)
}

// Groups whose members decide whether their requests are traced.
const (
	mastersGroup    = "system:masters"
	monitoringGroup = "system:monitoring"
)

// mayContinueTrace reports whether the authenticated user may continue a trace. Impersonation does
// not change the result.
func mayContinueTrace(r *http.Request) bool {
	user := request.UserFrom(r.Context())
	return user != nil && (slices.Contains(user.Groups, mastersGroup) || slices.Contains(user.Groups, monitoringGroup))
}

// spanName returns the name of the span of a request, as Kubernetes names it.
func spanName(r *http.Request) string {
	if info := requestinfo.FromContext(r.Context()); info != nil {
		return info.Pattern()
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
	"get":              "Get",
	"list":             "List",
	"create":           "Create",
	"update":           "Update",
	"patch":            "Patch",
	"delete":           "Delete",
	"deletecollection": "Delete",
}

// WithOperationSpan creates a span for the operation of an authorized request.
func (f *Filters) WithOperationSpan(next http.Handler) http.Handler {
	if f.Traces == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := requestinfo.FromContext(r.Context())
		name := operationNames[info.Verb]
		if name == "" || info.Target == nil || info.LongRunning() {
			next.ServeHTTP(w, r)
			return
		}
		ctx, span := tracing.Start(r.Context(), name, func() (out []attribute.KeyValue) {
			for _, described := range operationAttributes(w, r, info) {
				out = append(out, attribute.String(described.name, described.value))
			}
			return out
		})
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// operationAttribute is a name and a value that describe an operation in spans and the slow log.
type operationAttribute struct{ name, value string }

// maxAttributeValue is the maximum size in bytes of a header value in an attribute.
const maxAttributeValue = 1024

// truncateValue returns a header value, cut to maxAttributeValue bytes.
func truncateValue(header string) string {
	if len(header) > maxAttributeValue {
		return header[:maxAttributeValue] + "...TRUNCATED"
	}
	return header
}

// operationAttributes returns the attributes of an operation, named as in Kubernetes.
func operationAttributes(w http.ResponseWriter, r *http.Request, info *requestinfo.Info) []operationAttribute {
	scope := "cluster"
	switch {
	case info.Name != "", info.Verb == "create":
		scope = "resource"
	case info.Namespace != "":
		scope = "namespace"
	}
	verb := reportedVerbs[info.Verb]
	if info.Verb == "patch" && isApply(r) {
		verb = "APPLY"
	}
	client := "unknown"
	if ip := utilnet.GetClientIP(r); ip != nil {
		client = ip.String()
	}
	id := w.Header().Get("Audit-Id")
	return []operationAttribute{
		{"accept", truncateValue(r.Header.Get("Accept"))},
		{"audit-id", id[:min(len(id), request.MaxTracedID)]},
		{"client", client},
		{"api-group", info.Group},
		{"api-version", info.Version},
		{"name", info.Name},
		{"subresource", info.Subresource},
		{"namespace", info.Namespace},
		{"protocol", r.Proto},
		{"resource", info.Resource},
		{"scope", scope},
		{"url", truncateValue(r.URL.Path)},
		{"user-agent", truncateValue(r.UserAgent())},
		{"verb", verb},
	}
}

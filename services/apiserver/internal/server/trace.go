package server

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

// trace makes a span of each authenticated request. Privileged users continue their own
// traces. Every other client starts a trace, which links to the one that the client names
// (Kubernetes: "Traces For Kubernetes System Components").
func (c *Config) trace(next http.Handler) http.Handler {
	return c.Traces.Handler(tracing.Incoming{Name: spanName, Follow: privileged, Start: func(r *http.Request) time.Time {
		return request.Received(r.Context())
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
	if op := requestinfo.From(r.Context()); op != nil {
		return op.Form()
	}
	return r.Method
}

// authentication starts the span of authentication. It is the first of a trace: before that,
// no trace of the client can be trusted.
func (c *Config) authentication(ctx context.Context) (context.Context, tracing.Span) {
	return c.Traces.Begin(ctx, func() string { return "authentication" })
}

// step is the span of a filter; without traces it is not even looked for.
func (c *Config) step(ctx context.Context, name string) (context.Context, tracing.Span) {
	if c.Traces == nil {
		return ctx, tracing.Span{}
	}
	return tracing.Start(ctx, name, nil)
}

// operations are what spans of operations are called, by verb. A watch has none.
var operations = map[string]string{
	"get": "Get", "list": "List", "create": "Create", "update": "Update", "patch": "Patch", "delete": "Delete", "deletecollection": "Delete",
}

// operation makes a span of what a request does to objects, once it may.
func (c *Config) operation(next http.Handler) http.Handler {
	if c.Traces == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := requestinfo.From(r.Context())
		name := operations[op.Verb]
		if name == "" || op.Target == nil || op.LongRunning() {
			next.ServeHTTP(w, r)
			return
		}
		ctx, span := tracing.Start(r.Context(), name, func() (out []attribute.KeyValue) {
			for _, f := range about(w, r, op) {
				out = append(out, attribute.String(f.name, f.value))
			}
			return out
		})
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// field is what is told of an operation.
type field struct{ name, value string }

// maxTold bounds what is told of a header, in bytes.
const maxTold = 1024

func shortened(header string) string {
	if len(header) > maxTold {
		return header[:maxTold] + "...TRUNCATED"
	}
	return header
}

// about tells of an operation, in the words of Kubernetes.
func about(w http.ResponseWriter, r *http.Request, op *requestinfo.Info) []field {
	scope := "cluster"
	switch {
	case op.Name != "", op.Verb == "create":
		scope = "resource"
	case op.Namespace != "":
		scope = "namespace"
	}
	verb := verbs[op.Verb]
	if op.Verb == "patch" && applies(r) {
		verb = "APPLY"
	}
	client := "unknown"
	if ip := utilnet.GetClientIP(r); ip != nil {
		client = ip.String()
	}
	id := w.Header().Get("Audit-Id")
	return []field{
		{"accept", shortened(r.Header.Get("Accept"))}, {"audit-id", id[:min(len(id), request.MaxTracedID)]}, {"client", client},
		{"api-group", op.Group}, {"api-version", op.Version}, {"name", op.Name}, {"subresource", op.Subresource}, {"namespace", op.Namespace},
		{"protocol", r.Proto}, {"resource", op.Resource}, {"scope", scope}, {"url", shortened(r.URL.Path)}, {"user-agent", shortened(r.UserAgent())}, {"verb", verb},
	}
}

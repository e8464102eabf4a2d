package server

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/request"
)

// trace makes a span of each request, when that is wanted. Anybody may call, so traces of
// callers are not gone on with, but linked to (Kubernetes: "Traces For Kubernetes System
// Components").
func (c *Config) trace(next http.Handler) http.Handler {
	return c.Traces.Handler(tracing.Incoming{Name: spanName}, next)
}

func spanName(r *http.Request) string {
	if op := request.From(r.Context()); op != nil {
		return op.Form()
	}
	return r.Method
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
		op := request.From(r.Context())
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
func about(w http.ResponseWriter, r *http.Request, op *request.Operation) []field {
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
	client, _, _ := strings.Cut(r.RemoteAddr, "%")
	return []field{
		{"accept", shortened(r.Header.Get("Accept"))}, {"audit-id", w.Header().Get("Audit-Id")}, {"client", client},
		{"api-group", op.Group}, {"api-version", op.Version}, {"name", op.Name}, {"subresource", op.Subresource}, {"namespace", op.Namespace},
		{"protocol", r.Proto}, {"resource", op.Resource}, {"scope", scope}, {"url", shortened(r.URL.Path)}, {"user-agent", shortened(r.UserAgent())}, {"verb", verb},
	}
}

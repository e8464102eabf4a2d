package writes

import (
	"context"
	"strings"
	"time"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/storage/traced"
)

// Events of a request's span, in the words of Kubernetes.
const (
	eventPatch   = "About to apply patch"
	eventAdmit   = "About to check admission control"
	eventStored  = "Object stored in database"
	eventDelete  = "About to delete object from database"
	eventDeleted = "Object deleted from database"
)

// encodes records when an object is encoded; the function that it returns records the end.
func (r *Request) encodes(ctx context.Context) (done func()) {
	if !tracing.Recording(ctx) {
		return func() {}
	}
	r.encoded.Begin = time.Now()
	return func() { r.encoded.End = time.Now() }
}

// described returns a context with which the store describes the object in its span.
func (r *Request) described(ctx context.Context) context.Context {
	if !tracing.Recording(ctx) {
		return ctx
	}
	v := r.encoded
	r.encoded = traced.Value{} // another attempt encodes again
	v.Type, v.Resource = r.internalType(), r.Kind.StoredGroupResource().String()
	return traced.WithValue(ctx, v)
}

// internalType returns the name of the Go type that Kubernetes stores the kind from.
func (r *Request) internalType() string {
	if r.Kind.Document != nil {
		return "*unstructured.Unstructured"
	}
	group, _, _ := strings.Cut(r.Kind.StoredGVK().Group, ".")
	switch group {
	case "":
		group = "core"
	case "internal":
		group = "apiserverinternal"
	}
	return "*" + group + "." + r.Kind.StoredGVK().Kind
}

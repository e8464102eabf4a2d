package writes

import (
	"context"
	"time"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/request"
)

// Events of a request's span, named as in Kubernetes.
const (
	eventPatch   = "About to apply patch"
	eventAdmit   = "About to check admission control"
	eventStored  = "Object stored in database"
	eventDelete  = "About to delete object from database"
	eventDeleted = "Object deleted from database"
)

// encodes records the start of an object's encoding. The function that it returns records the end.
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
	r.encoded = request.StoredValue{} // a further attempt encodes again
	v.Type, v.Resource = r.Kind.Coder.InternalType(), r.Kind.StoredGroupResource().String()
	ctx, s := request.Derive(ctx)
	s.Stored = &v
	return ctx
}

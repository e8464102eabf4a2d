package writes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// Config holds the dependencies and options of a Writer.
type Config struct {
	Codec  *codec.Codec
	Fields *apply.Fields
	Store  storage.Interface
	// Admission admits every write. Authorizer decides whether an update or apply of a missing
	// object may create it.
	Admission  *admission.Chain
	Authorizer authz.Authorizer
	// Allocators by resource.
	Allocators map[schema.GroupResource]Allocator
	// WaitForRevision, by resource, waits for a bounded time until the server has acted on the
	// write at a revision. The response waits for it.
	WaitForRevision map[schema.GroupResource]func(ctx context.Context, revision int64)
	// Written, if set, is called with each written revision before the response is sent, so that
	// decisions based on such objects can wait for that revision.
	Written func(resource schema.GroupResource, revision int64)
	// Updated, by resource, is called after an update was stored; not for dry runs.
	Updated map[schema.GroupResource]func(old, obj registry.Object)
	// CorruptObjects is the policy for reporting corrupt objects.
	CorruptObjects status.CorruptObjects
	// Declared configures declarative validation.
	Declared DeclarativeValidationOptions
	// NoGarbageCollector leaves the garbage collector's finalizers unchanged.
	NoGarbageCollector bool
	// EventTTL is the lifetime of events.
	EventTTL time.Duration
	// Now is the clock of object times.
	Now     func() time.Time
	Logger  *slog.Logger
	Metrics Metrics
}

// Writer executes writes. It keeps no state and is safe for concurrent use.
type Writer struct {
	Config
	// scaleOwnership computes the field ownership of scales.
	scaleOwnership *apply.Manager
}

// New returns a Writer.
func New(config Config) *Writer {
	w := &Writer{Config: config}
	if config.Fields != nil {
		w.scaleOwnership = config.Fields.Standalone(&registry.Kind{
			Names:   registry.Names{Group: scaleGVK.Group, Version: scaleGVK.Version, Kind: scaleGVK.Kind},
			Virtual: true, New: declare.New[autoscalingv1.Scale],
		}, "scale")
	}
	return w
}

// Request is one write. It owns its Object.
type Request struct {
	// Resource is the resource of the path. Sub is the subresource, or nil.
	Resource *apiset.Resource
	Sub      *registry.Subresource
	// Namespace and Name identify the object. Name is empty for a creation.
	Namespace, Name string

	// User is the author of the write.
	User *request.User
	// Options are the CreateOptions, UpdateOptions, PatchOptions or DeleteOptions that the client
	// sent. Admission sees them.
	Options runtime.Object
	// DryRun leaves the store and all allocations unchanged.
	DryRun bool
	// Manager is the field manager of the write. Force lets an apply take over fields of other
	// managers.
	Manager string
	Force   bool
	// FieldValidation determines the handling of unknown fields in a patch.
	FieldValidation string

	// Object is the object to create or update; for a scale subresource it is a Scale. Patch is the
	// patch to apply.
	Object registry.Object
	Patch  *patch.Patch

	// Collection reports whether the write is part of a request for a collection. Admission then
	// sees no name.
	Collection bool

	// WithoutLazyField reports whether the write neither reads nor changes the lazily decoded field
	// of its object (registry.LazyField), and no admission webhook or policy sees the object. A
	// placeholder then replaces the field, which is not decoded.
	WithoutLazyField bool
	// restoreLazyField puts the field back into a stored value. It is nil if the field was not
	// replaced.
	restoreLazyField func(stored []byte) ([]byte, bool)

	// encoded describes the value that the next write stores, for its span.
	encoded request.StoredValue
	// admission is the admission request of a change if its object is not the written object
	// itself. It has passed mutating admission and is validated later.
	admission *admission.Request
	// ExtraPreconditions holds additional preconditions of the write.
	ExtraPreconditions []storage.Precondition
	// SkipWritten suppresses the call of Written.
	SkipWritten bool

	// Admitted reports whether a deletion has been admitted as part of an operation; admission is
	// not called again.
	Admitted bool
	// BeforeDelete, if set, changes the object before it is deleted. The changed object is stored
	// first.
	BeforeDelete func(registry.Object)
}

// Result is the result of a write.
type Result struct {
	// Item is the object as it is in the store, or would be after a dry run. For a removed object
	// it is the last state. It is empty for a scale.
	codec.Item
	// Object is set for a scale, and for a deletion.
	Object registry.Object
	// Created reports whether the write created the object, Deleted whether it removed it.
	Created, Deleted bool
}

// ForObject returns the same request for another object.
func (r *Request) ForObject(resource *apiset.Resource, sub *registry.Subresource, namespace, name string) *Request {
	other := *r
	other.Resource = resource
	other.Sub = sub
	other.Namespace = namespace
	other.Name = name
	return &other
}

// GVK returns the kind of the body that the path accepts and returns.
func (r *Request) GVK() schema.GroupVersionKind {
	if r.Sub == nil || r.Sub.GVK.Kind == "" {
		return r.Resource.GVK()
	}
	if r.Sub.GVK.Version == "" {
		return r.Resource.GroupVersion().WithKind(r.Sub.GVK.Kind)
	}
	return r.Sub.GVK
}

// Admission returns the admission request of the write.
func (r *Request) Admission(operation admission.Operation, obj, old runtime.Object) *admission.Request {
	req := &admission.Request{
		Operation: operation,
		Resource:  r.Resource.Kind,
		Kind:      r.GVK(),
		Namespace: r.Namespace,
		Name:      r.Name,
		Object:    obj,
		OldObject: old,
		User:      r.User,
		DryRun:    r.DryRun,
		Options:   r.Options,
	}
	if r.Sub != nil {
		req.Subresource = r.Sub.Name
	}
	if r.Collection {
		req.Name = ""
	} else if req.Name == "" {
		if m, ok := obj.(registry.Object); ok {
			req.Name = m.GetName()
		}
	}
	return req
}

// patchedCost returns the cost in bytes of decoding and defaulting an object.
func (r *Request) patchedCost(doc []byte, cbor bool) int {
	size := max(request.WeightOfJSON(doc), r.Resource.DocumentCost(doc, cbor))
	if request.Compiled(r.Resource.Group, r.Resource.Kind.Resource) {
		size *= request.CostlyKind
	}
	return size
}

// objectNamespace returns the namespace of the object. It is "" for cluster-scoped kinds.
func (r *Request) objectNamespace() string {
	if r.Resource.Namespaced {
		return r.Namespace
	}
	return ""
}

// objectKey returns the key of the object in the store.
func (r *Request) objectKey() string { return r.Resource.Key(r.Namespace, r.Name) }

// objectRef returns the reference that messages use for the object.
func (r *Request) objectRef() status.Ref { return refOf(r.Resource, r.Name) }

// fieldManager returns the manager that records the field ownership of the write.
func (r *Request) fieldManager() *apply.Manager { return r.Resource.Owner(r.Sub) }

// refOf returns the reference that messages use for an object.
func refOf(resource *apiset.Resource, name string) status.Ref {
	return status.Ref{Resource: resource.GroupResource(), Name: name}
}

func newUID() types.UID { return types.UID(uuid.NewString()) }

var scaleGVK = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// Events of a request's span, named as in Kubernetes.
const (
	eventPatch   = "About to apply patch"
	eventAdmit   = "About to check admission control"
	eventStored  = "Object stored in database"
	eventDelete  = "About to delete object from database"
	eventDeleted = "Object deleted from database"
)

// timeEncoding records the start of an object's encoding. The function that it returns records the
// end.
func (r *Request) timeEncoding(ctx context.Context) (done func()) {
	if !tracing.Recording(ctx) {
		return func() {}
	}
	r.encoded.Begin = time.Now()
	return func() { r.encoded.End = time.Now() }
}

// withStoredValue returns a context with which the store describes the object in its span.
func (r *Request) withStoredValue(ctx context.Context) context.Context {
	if !tracing.Recording(ctx) {
		return ctx
	}
	v := r.encoded
	r.encoded = request.StoredValue{} // a further attempt encodes again
	v.Type = r.Resource.Coder.InternalType()
	v.Resource = r.Resource.StoredGroupResource().String()
	ctx, s := request.Derive(ctx)
	s.Stored = &v
	return ctx
}

// DeclarativeValidationOptions configures declarative validation (specification: "Declarative
// validation"). With Enabled it runs beside the handwritten validation, and differences are logged
// and counted. With Takeover its errors apply.
type DeclarativeValidationOptions struct{ Enabled, Takeover bool }

// Metrics counts failures of declarative validation. It also measures how long an update compares
// the object with the stored one, by result: the managed fields differ, other fields differ, or the
// objects are equal.
type Metrics struct {
	mismatches, panics prometheus.Counter
	fast, slow, equal  prometheus.Observer
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "apiserver",
			Subsystem: "validation",
			Name:      name,
			Help:      "[BETA] " + help,
		})
	}
	metrics := Metrics{
		mismatches: counter("declarative_validation_mismatch_total",
			"Number of times declarative validation results differed from handwritten validation results for core types."),
		panics: counter("declarative_validation_panic_total", "Number of times declarative validation has panicked during validation."),
	}
	comparisons := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_request_timestamp_comparison_time",
		Help:    "[ALPHA] Time in seconds to compare the object of an update or patch with the stored one.",
		Buckets: []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0},
	}, []string{"code_path"})
	metrics.fast = comparisons.WithLabelValues("unequalObjectsFast")
	metrics.slow = comparisons.WithLabelValues("unequalObjectsSlow")
	metrics.equal = comparisons.WithLabelValues("equalObjectsSlow")
	registerer.MustRegister(metrics.mismatches, metrics.panics, comparisons)
	return metrics
}

// recordComparison records the duration of a comparison. It does nothing without an observer.
func (m *Metrics) recordComparison(path prometheus.Observer, start time.Time) {
	if path != nil {
		path.Observe(time.Since(start).Seconds())
	}
}

// Allocator allocates cluster-wide unique values to the objects of one kind.
type Allocator interface {
	// Complete fills in values that follow from the object, the live object (nil at creation) and
	// the cluster's configuration. It allocates nothing.
	Complete(obj, old registry.Object) field.ErrorList
	// Allocate allocates the values that the object lacks; a dry run allocates nothing. The caller
	// must call Commit or Rollback of the reservation.
	Allocate(ctx context.Context, obj, old registry.Object, dryRun bool) (admission.Reservation, error)
	// Release frees the values of an object that has been removed.
	Release(ctx context.Context, obj registry.Object)
}

// allocatorOf returns the Allocator of the request's kind. Most kinds have none.
func (w *Writer) allocatorOf(r *Request) Allocator {
	return w.Allocators[r.Resource.GVR().GroupResource()]
}

// completeObject runs Allocator.Complete, if the kind has an Allocator.
func (w *Writer) completeObject(r *Request, obj, old registry.Object) error {
	allocator := w.allocatorOf(r)
	if allocator == nil || r.Sub != nil {
		return nil
	}
	if errs := allocator.Complete(obj, old); len(errs) > 0 {
		return status.Invalid(r.Resource.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// allocateValues runs Allocator.Allocate, if the kind has an Allocator. As in Kubernetes, it
// precedes validation, so that its error comes first and validation sees the allocated values.
func (w *Writer) allocateValues(ctx context.Context, r *Request, obj, old registry.Object) (admission.Reservation, error) {
	allocator := w.allocatorOf(r)
	if allocator == nil || r.Sub != nil {
		return noReservation{}, nil
	}
	return allocator.Allocate(ctx, obj, old, r.DryRun)
}

// settleReservation commits or rolls back a reservation according to the result of the write. It does
// neither if the result is unknown: the repair loop finds unused values.
func settleReservation(ctx context.Context, reservation admission.Reservation, err error) {
	var exists *storage.ExistsError
	var conflict *storage.ConflictError
	switch {
	case err == nil:
		reservation.Commit(ctx)
	case errors.As(err, &exists), errors.As(err, &conflict),
		errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrTooLarge):
		reservation.Rollback(ctx)
	}
}

// noReservation is the reservation of a kind without an Allocator.
type noReservation struct{}

func (noReservation) Commit(context.Context) {}

func (noReservation) Rollback(context.Context) {}

package writes

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/apply"
	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/traced"
)

// Config is what writes work with.
type Config struct {
	Codec  *codec.Codec
	Fields *apply.Fields
	Store  storage.Interface
	// Admission is asked about every write, Authorizer whether a write that finds
	// nothing may create it.
	Admission  *admission.Chain
	Authorizer authz.Authorizer
	// Allocators by kind.
	Allocators map[schema.GroupResource]Allocator
	// Settled, by kind, waits within bounds until the server has acted on what
	// was written at a revision, before the client is answered.
	Settled map[schema.GroupResource]func(ctx context.Context, revision int64)
	// Written, if set, is told each revision that is written, before the client is
	// answered: who judges by such objects waits for it.
	Written func(resource schema.GroupResource, revision int64)
	// Damage says how objects are told of that cannot be read.
	Damage status.Damage
	// Declared says what declared rules are for.
	Declared Declared
	// NoGarbageCollector leaves its finalizers as they are.
	NoGarbageCollector bool
	// EventTTL is the lifetime of events.
	EventTTL time.Duration
	// Now is the clock of object times.
	Now     func() time.Time
	Logger  *slog.Logger
	Metrics Metrics
}

// Writer makes writes. It keeps no state of its own.
type Writer struct {
	Config
	// scales keeps the field ownership of scales.
	scales *apply.Manager
}

// New makes a writer.
func New(c Config) *Writer {
	w := &Writer{Config: c}
	if c.Fields != nil {
		w.scales = c.Fields.Apart(&registry.Kind{
			Names:   registry.Names{Group: scaleGVK.Group, Version: scaleGVK.Version, Kind: scaleGVK.Kind},
			Virtual: true, New: declare.New[autoscalingv1.Scale],
		}, "scale")
	}
	return w
}

// Request is one write. Its Object belongs to the write from then on.
type Request struct {
	// Kind and Sub say what is written, Namespace and Name which; Name is empty
	// for a creation.
	Kind            *served.Resource
	Sub             *registry.Subresource
	Namespace, Name string

	User *request.User
	// Options are the CreateOptions, UpdateOptions, PatchOptions or DeleteOptions
	// that the client sent; admission sees them.
	Options runtime.Object
	DryRun  bool
	// Manager is who owns the fields that are written; Force lets an apply take
	// over those of others.
	Manager string
	Force   bool
	// FieldValidation says what becomes of unknown fields of a patch.
	FieldValidation string

	// Object is what Create and Update want; with a scale sub-resource it is a
	// Scale. Patch is what Patch does.
	Object registry.Object
	Patch  *Patch

	// Collection tells that the write is part of one of a collection: admission
	// sees no name.
	Collection bool

	// Apart tells that the write neither looks at the part of its object that is kept
	// apart (registry.Apart), nor changes it, and that nobody else is asked about it:
	// that part is not decoded, marks stand for it. restore puts it back.
	Apart   bool
	restore func(stored []byte) ([]byte, bool)

	// encoded describes the value that the next write stores, for its span.
	encoded traced.Value
	// asked is what admission was asked of a change and will be asked to validate,
	// where that is not the object itself.
	asked *admission.Request
	// While are what the write depends on besides.
	While []storage.Premise
	// Unnoted keeps what is written from Written.
	Unnoted bool

	// Admitted tells that a deletion was admitted as part of an operation and is
	// not asked about again. Mark changes the object that is deleted.
	Admitted bool
	Mark     func(registry.Object)
}

// Result is what a write came to.
type Result struct {
	// Item is the object as it stands in the store, or would after a dry run; of
	// an object that was removed, as it last was. It is empty for a scale.
	codec.Item
	// Object is set for a scale, and for a deletion.
	Object registry.Object
	// Created tells that there was none, Removed that there is none any more.
	Created, Removed bool
}

// On is the same request for another object of a namespace and kind.
func (r *Request) On(kind *served.Resource, sub *registry.Subresource, namespace, name string) *Request {
	other := *r
	other.Kind, other.Sub, other.Namespace, other.Name = kind, sub, namespace, name
	return &other
}

// GVK is the kind of what the path's object is sent and received as.
func (r *Request) GVK() schema.GroupVersionKind {
	if r.Sub == nil || r.Sub.GVK.Kind == "" {
		return r.Kind.GVK()
	}
	if r.Sub.GVK.Version == "" {
		return r.Kind.GroupVersion().WithKind(r.Sub.GVK.Kind)
	}
	return r.Sub.GVK
}

// Admission is the request as admission sees it.
func (r *Request) Admission(op admission.Operation, obj, old runtime.Object) *admission.Request {
	a := &admission.Request{
		Operation: op, Resource: r.Kind.Kind, Kind: r.GVK(), Namespace: r.Namespace, Name: r.Name,
		Object: obj, OldObject: old, User: r.User, DryRun: r.DryRun, Options: r.Options,
	}
	if r.Sub != nil {
		a.Subresource = r.Sub.Name
	}
	if r.Collection {
		a.Name = ""
	} else if a.Name == "" {
		if m, ok := obj.(registry.Object); ok {
			a.Name = m.GetName()
		}
	}
	return a
}

// place is the namespace that the object stands in, if any.
func (r *Request) place() string {
	if r.Kind.Namespaced {
		return r.Namespace
	}
	return ""
}

func (r *Request) key() string           { return r.Kind.Key(r.Namespace, r.Name) }
func (r *Request) ref() status.Ref       { return refOf(r.Kind, r.Name) }
func (r *Request) owner() *apply.Manager { return r.Kind.Owner(r.Sub) }

// refOf names an object in messages.
func refOf(k *served.Resource, name string) status.Ref {
	return status.Ref{Resource: k.GroupResource(), Name: name}
}

const second = time.Second

func newUID() types.UID { return types.UID(uuid.NewString()) }

var scaleGVK = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

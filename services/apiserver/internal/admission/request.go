package admission

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/celenv"
	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// Operation is the operation of a request on an object.
type Operation string

// Operations.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Request is one operation on one object, as plugins see it.
type Request struct {
	Operation Operation
	// Resource is the declaration of the resource in the path, without the subresource.
	Resource    *registry.Kind
	Subresource string
	// Kind is the kind of Object and OldObject. A subresource may have its own kind.
	Kind schema.GroupVersionKind
	// Namespace is empty for cluster-scoped objects. Name is empty if it is to be generated, and
	// for the deletion of a collection.
	Namespace, Name string
	// Object is the object to be stored; nil for Delete. A mutator changes it in place. For Connect
	// it holds the options of the connection.
	Object runtime.Object
	// OldObject is the stored object; nil for Create and Connect.
	OldObject runtime.Object
	// Options holds the CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of the request;
	// nil for Connect.
	Options runtime.Object
	User    *request.User
	DryRun  bool

	annotations, details map[string]string
	expense              *celenv.Expense

	state     map[any]any
	again     bool
	reinvoked bool
}

// Is reports whether the request is for a resource of a group, in any version and for any
// subresource.
func (r *Request) Is(group, resource string) bool {
	return r.Resource.Group == group && r.Resource.Resource == resource
}

// Annotate sets an audit annotation. The first value of a key wins.
func (r *Request) Annotate(key, value string) {
	if r.annotations == nil {
		r.annotations = map[string]string{}
	}
	if _, ok := r.annotations[key]; !ok {
		r.annotations[key] = value
	}
}

// Annotations returns a copy of the audit annotations.
func (r *Request) Annotations() map[string]string { return maps.Clone(r.annotations) }

// Detail is Annotate for annotations that are recorded only together with the request's body.
func (r *Request) Detail(key, value string) {
	if r.details == nil {
		r.details = map[string]string{}
	}
	if _, ok := r.details[key]; !ok {
		r.details[key] = value
	}
}

// Details returns a copy of the annotations set by Detail.
func (r *Request) Details() map[string]string { return maps.Clone(r.details) }

// recordAnnotations adds the annotations to the audit event.
func (r *Request) recordAnnotations(ctx context.Context) {
	if rec := audit.From(ctx); rec != nil {
		rec.AnnotateAll(r.annotations)
		if rec.Wants(audit.Request) {
			rec.AnnotateAll(r.details)
		}
	}
}

// expensiveCost is the CEL cost from which the expressions of one request are expensive: about two
// milliseconds.
const expensiveCost = 20_000

// Metered returns a context for expressions that decide on the request. Once their total cost is
// high, they acquire the limiter for large requests. They continue even if it rejects them, because
// their cost is bounded.
func (r *Request) Metered(ctx context.Context) context.Context {
	if r.expense == nil {
		r.expense = celenv.NewExpense(expensiveCost, func() { _ = request.Estimate(ctx, request.LargeBody) })
	}
	return r.expense.With(ctx)
}

// RequestReinvocation requests a second run of the mutating phase, because the object changed in a
// way that earlier plugins may need to see.
func (r *Request) RequestReinvocation() { r.again = true }

// Reinvoked reports whether the mutating phase runs for the second time.
func (r *Request) Reinvoked() bool { return r.reinvoked }

// State returns the state that a plugin keeps between its calls for one request, by a key of its
// own. It is nil before SetState.
func (r *Request) State(key any) any { return r.state[key] }

// SetState sets the state for a key; see State.
func (r *Request) SetState(key, value any) {
	if r.state == nil {
		r.state = map[any]any{}
	}
	r.state[key] = value
}

// Housekeeping reports whether an update changes only owner references, finalizers and managed
// fields, as garbage collection and storage migrations do.
func (r *Request) Housekeeping() bool {
	o, ok := r.Object.(registry.Object)
	if !ok {
		return false
	}
	was, ok := r.OldObject.(registry.Object)
	if !ok {
		return false
	}
	same := o.DeepCopyObject().(registry.Object)
	same.SetOwnerReferences(was.GetOwnerReferences())
	same.SetFinalizers(was.GetFinalizers())
	same.SetManagedFields(was.GetManagedFields())
	same.GetObjectKind().SetGroupVersionKind(was.GetObjectKind().GroupVersionKind())
	return semantic.Equal(same, was)
}

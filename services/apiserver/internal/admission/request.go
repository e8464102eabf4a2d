package admission

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/celenv"
	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/audit"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// Operation is what a request does to an object.
type Operation string

// The operations.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Request is one operation on one object, which plugins decide on.
type Request struct {
	Operation Operation
	// Resource is the declaration of what the path names, without the
	// sub-resource.
	Resource    *registry.Kind
	Subresource string
	// Kind of Object and OldObject; a sub-resource may have one of its own.
	Kind schema.GroupVersionKind
	// Namespace is empty for what stands in none. Name is empty when it is yet
	// to be generated, and for the deletion of a collection.
	Namespace, Name string
	// Object is what will be stored; nil for Delete. A mutator changes it in
	// place. For Connect it holds the options of the connection.
	Object runtime.Object
	// OldObject is what is stored; nil for Create and Connect.
	OldObject runtime.Object
	// Options are the CreateOptions, UpdateOptions, PatchOptions or
	// DeleteOptions of the request; nil for Connect.
	Options runtime.Object
	User    *request.User
	DryRun  bool

	annotations, details map[string]string
	expense              *celenv.Expense

	state     map[any]any
	again     bool
	reinvoked bool
}

// Is tells whether the request is for a resource of a group, whatever the
// version and sub-resource.
func (r *Request) Is(group, resource string) bool {
	return r.Resource.Group == group && r.Resource.Resource == resource
}

// Annotate leaves word of a decision for the audit log; the first word on a key
// counts.
func (r *Request) Annotate(key, value string) {
	if r.annotations == nil {
		r.annotations = map[string]string{}
	}
	if _, ok := r.annotations[key]; !ok {
		r.annotations[key] = value
	}
}

// Annotations are what plugins left word of.
func (r *Request) Annotations() map[string]string { return maps.Clone(r.annotations) }

// Detail is Annotate for what is told of a request only where its body is.
func (r *Request) Detail(key, value string) {
	if r.details == nil {
		r.details = map[string]string{}
	}
	if _, ok := r.details[key]; !ok {
		r.details[key] = value
	}
}

// Details are what plugins left word of by Detail.
func (r *Request) Details() map[string]string { return maps.Clone(r.details) }

// tell passes on what plugins left word of.
func (r *Request) tell(ctx context.Context) {
	if rec := audit.From(ctx); rec != nil {
		rec.AnnotateAll(r.annotations)
		if rec.Wants(audit.Request) {
			rec.AnnotateAll(r.details)
		}
	}
}

// cheap is what expressions of one request may cost before that is a lot: some two milliseconds.
const cheap = 20_000

// Metered is the context of expressions that decide on the request: once they have cost a lot together,
// they go on in its turn of large requests, or without one, as what they cost is bounded.
func (r *Request) Metered(ctx context.Context) context.Context {
	if r.expense == nil {
		r.expense = celenv.NewExpense(cheap, func() { request.Weigh(ctx, request.LargeBody) })
	}
	return r.expense.With(ctx)
}

// AskAgain has the mutating phase run once more when it is through, because the
// object was changed in a way that plugins before may want to see.
func (r *Request) AskAgain() { r.again = true }

// Reinvoked tells that the mutating phase runs for the second time.
func (r *Request) Reinvoked() bool { return r.reinvoked }

// State is what a plugin keeps of the request from one of its turns to the next,
// by a key of its own; nil before SetState.
func (r *Request) State(key any) any { return r.state[key] }

// SetState: see State.
func (r *Request) SetState(key, value any) {
	if r.state == nil {
		r.state = map[any]any{}
	}
	r.state[key] = value
}

// Housekeeping tells whether an update changes nothing but what garbage
// collection and migrations need to change: owners, finalizers, who owns fields.
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

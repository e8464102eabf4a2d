package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	annotations map[string]string
	// details are annotations that are recorded only together with the request's body.
	details map[string]string
	// celCost is the total cost of the CEL expressions that decided on the request.
	celCost *celenv.CostSum

	// state holds the state that plugins keep between their calls; see State.
	state map[any]any
	// reinvoke is set when a plugin requests a second run of the mutating phase. reinvoked is set
	// during that second run.
	reinvoke  bool
	reinvoked bool
}

// IsResource reports whether the request is for a resource of a group, in any version and for any
// subresource.
func (r *Request) IsResource(group, resource string) bool {
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

// Detail sets an audit annotation that is recorded only together with the request's body. The first
// value of a key wins.
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
	if auditEvent := audit.FromContext(ctx); auditEvent != nil {
		auditEvent.AnnotateAll(r.annotations)
		if auditEvent.Enabled(audit.Request) {
			auditEvent.AnnotateAll(r.details)
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
	if r.celCost == nil {
		r.celCost = celenv.NewCostSum(expensiveCost, func() { _ = request.Estimate(ctx, request.LargeBody) })
	}
	return r.celCost.NewContext(ctx)
}

// RequestReinvocation requests a second run of the mutating phase, because the object changed in a
// way that earlier plugins may need to see.
func (r *Request) RequestReinvocation() { r.reinvoke = true }

// Reinvoked reports whether the mutating phase runs for the second time.
func (r *Request) Reinvoked() bool { return r.reinvoked }

// State returns the state that a plugin keeps between its calls for this request, or nil before
// SetState. Each plugin uses a key of a private type, as for context.Context.
func (r *Request) State(key any) any { return r.state[key] }

// SetState sets the state for a key; see State.
func (r *Request) SetState(key, value any) {
	if r.state == nil {
		r.state = map[any]any{}
	}
	r.state[key] = value
}

// IsMetadataOnlyUpdate reports whether an update changes only owner references, finalizers and managed
// fields, as garbage collection and storage migrations do.
func (r *Request) IsMetadataOnlyUpdate() bool {
	object, ok := r.Object.(registry.Object)
	if !ok {
		return false
	}
	old, ok := r.OldObject.(registry.Object)
	if !ok {
		return false
	}
	expected := object.DeepCopyObject().(registry.Object)
	expected.SetOwnerReferences(old.GetOwnerReferences())
	expected.SetFinalizers(old.GetFinalizers())
	expected.SetManagedFields(old.GetManagedFields())
	expected.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
	return semantic.Equal(expected, old)
}

// ObjectName returns the name of the object for error messages: its name, else its generateName,
// else "Unknown".
func (r *Request) ObjectName() string {
	if r.Name != "" {
		return r.Name
	}
	if r.Object == nil {
		return "Unknown"
	}
	m, err := meta.Accessor(r.Object)
	if err != nil {
		return "Unknown"
	}
	return cmp.Or(m.GetName(), m.GetGenerateName(), "Unknown")
}

// Forbidden returns a Forbidden error for the object of the request with err as the reason. If err
// is a Forbidden error already, it returns err unchanged.
func (r *Request) Forbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return err
	}
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.ObjectName(), err)
}

// Forbiddenf is Forbidden with a formatted reason.
func (r *Request) Forbiddenf(format string, args ...any) error {
	return r.Forbidden(fmt.Errorf(format, args...))
}

// IsObject reports whether the request is for an object itself and not for a subresource.
func (r *Request) IsObject(group, resource string) bool {
	return r.Subresource == "" && r.IsResource(group, resource)
}

// Reinvocation is the state that a plugin of the mutating phase keeps between the two runs of the
// phase for one request. It records which callees, such as webhooks, run again in the second run. A
// callee runs again if it asks for that (reinvocationPolicy IfNeeded) and the object changed after
// its first call.
type Reinvocation struct {
	request *Request
	// wanted holds the callees that run again only if the object still changes. due holds the
	// callees that run again in any case, because the object has changed since their call.
	wanted, due map[string]bool
	// lastObject is the object after the plugin's last call; nil if no callee wants reinvocation.
	lastObject runtime.Object
}

// Reinvocation returns the state of a plugin at the start of each of its calls. key identifies the
// plugin; see State. In the second run, it also detects changes by other plugins. The plugin calls
// End when its call is complete.
func (r *Request) Reinvocation(key any) *Reinvocation {
	state, _ := r.State(key).(*Reinvocation)
	if state == nil || !r.Reinvoked() {
		state = &Reinvocation{request: r, wanted: map[string]bool{}, due: map[string]bool{}}
		r.SetState(key, state)
	} else if r.Object != nil && !semantic.Equal(state.lastObject, r.Object) {
		state.scheduleWanted()
	}
	return state
}

// ShouldCall reports whether the current run includes a callee. The first run includes all.
func (r *Reinvocation) ShouldCall(callee string) bool { return !r.request.Reinvoked() || r.due[callee] }

// Changed records that a callee changed the object. It schedules a second run for the callees that
// asked for one so far.
func (r *Reinvocation) Changed() {
	r.scheduleWanted()
	r.request.RequestReinvocation()
}

// WantsReinvocation records that a callee runs again if the object changes after this call.
func (r *Reinvocation) WantsReinvocation(callee string) { r.wanted[callee] = true }

// scheduleWanted moves all callees from wanted to due.
func (r *Reinvocation) scheduleWanted() {
	for callee := range r.wanted {
		r.due[callee] = true
	}
	clear(r.wanted)
}

// End records the object at the end of a call of the plugin, so that the next call detects changes.
func (r *Reinvocation) End() {
	r.lastObject = nil
	if r.request.Object != nil && len(r.wanted) > 0 {
		r.lastObject = r.request.Object.DeepCopyObject()
	}
}

// DefaultClass returns the name of the default class, or "" if isDefault is false for all classes.
// If several classes are marked as default, it returns the newest. Of equally old classes it returns
// the first by name.
func DefaultClass[T metav1.Object](classes []T, isDefault func(T) bool) string {
	var found metav1.Object
	for _, class := range classes {
		if !isDefault(class) {
			continue
		}
		if found != nil {
			foundTime, classTime := found.GetCreationTimestamp(), class.GetCreationTimestamp()
			if classTime.Before(&foundTime) || classTime.Equal(&foundTime) && class.GetName() > found.GetName() {
				continue
			}
		}
		found = class
	}
	if found == nil {
		return ""
	}
	return found.GetName()
}

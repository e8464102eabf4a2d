// Package registry declares the resources that the server serves. A folder per
// API group holds one file per kind; everything about a kind stands in its
// file, as a Kind value, and generic code (endpoints, codec, discovery,
// openapi, watch cache) reads it. Nothing here stores, serves or encodes.
package registry

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
)

// Object is what every kind's Go type is.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind declares one resource in one served version.
type Kind struct {
	Group, Version string
	// Resource is the plural name in paths, Singular and ShortNames are what
	// clients may write instead.
	Resource, Singular string
	ShortNames         []string
	Categories         []string
	// Kind is the name of the object's type; a collection's is Kind + "List".
	Kind       string
	Namespaced bool
	// Verbs as discovery tells them, sorted; nil means AllVerbs.
	Verbs []string
	// Virtual kinds are operations and are not stored (access reviews,
	// bindings, component statuses); a handler of endpoints answers them.
	Virtual bool

	// New and NewList make empty values of the Go types.
	New     func() runtime.Object
	NewList func() runtime.Object

	// Stored says where and in which form objects are kept.
	Stored Stored

	// ValidateName returns what is wrong with a name; prefix is true for a
	// generateName. Nil means DNSSubdomain.
	ValidateName func(name string, prefix bool) []string
	// AnyFinalizer allows finalizers without a domain, as custom resources have
	// them.
	AnyFinalizer bool

	// Default fills what the client left out (also run on objects that were
	// stored by an older server).
	Default func(Object)
	// PrepareCreate resets what a client must not set at creation, beyond the
	// status, which is reset for every kind that has the sub-resource.
	PrepareCreate func(Object)
	// Stamp, if set, records in a new object who creates it. It runs right after
	// PrepareCreate.
	Stamp func(Object, Requester)
	// KeepStatus keeps the status that a client sends at creation.
	KeepStatus bool
	// PrepareUpdate does so for an update; old is the live object, with which
	// obj may share memory afterwards.
	PrepareUpdate func(obj, old Object)
	// Validate checks an object to be created, ValidateUpdate a change. The
	// metadata's own rules are checked for every kind, before these. Nil means
	// that there is nothing more to check.
	Validate       func(Object) field.ErrorList
	ValidateUpdate func(obj, old Object) field.ErrorList
	// Declared has the rules that the fields of the type declare, which Validate
	// and ValidateUpdate have as well (marked as covered there). The gates
	// DeclarativeValidation and DeclarativeValidationTakeover say which count.
	Declared func(Object) field.ErrorList
	// Warnings are sent as Warning headers on create and update.
	Warnings func(Object) []string
	// UpdateWarnings, if set, takes the place of Warnings on an update.
	UpdateWarnings func(obj, old Object) []string
	// Deprecated, if set, is sent as a Warning header on every request.
	Deprecated string

	// Generation makes the server own metadata.generation: 1 at creation, one
	// more with each change of anything but metadata and status.
	Generation bool
	// CreateOnUpdate lets PUT create an object that does not exist.
	CreateOnUpdate bool
	// UpdateNeedsVersion refuses updates without a resourceVersion.
	UpdateNeedsVersion bool
	// ReturnDeleted makes DELETE answer the deleted object instead of a Status.
	ReturnDeleted bool
	// GracePeriod, for kinds that are deleted gracefully, is the number of
	// seconds to wait, given what the client asked for (nil: nothing). Nil
	// means immediate deletion.
	GracePeriod func(obj Object, asked *int64) int64
	// BeginDelete changes an object whose deletion begins but which must stay
	// for now; HeldBy tells whether something other than metadata.finalizers
	// keeps it (a namespace's spec.finalizers).
	BeginDelete func(Object)
	HeldBy      func(Object) bool
	// DefaultOrphan makes deletion orphan dependents unless asked otherwise.
	// OrphanWarning is sent as a Warning header when that happens because the
	// client asked for nothing.
	DefaultOrphan bool
	OrphanWarning string

	// Selectable are the fields that fieldSelector may name, beyond
	// metadata.name and metadata.namespace.
	Selectable []SelectableField

	// Columns of the Table representation; nil means Name and Created At.
	Columns []Column
	// RowConditions, if set, returns the conditions of an object's row in a
	// Table; nil when it has none.
	RowConditions func(Object) []metav1.TableRowCondition

	// Subresources in the order of their names.
	Subresources []Subresource

	// MergeType tells how the fields of objects without a Go type are merged;
	// nil means as their values tell: maps by key, lists as a whole.
	MergeType func() typed.ParseableType
}

// Requester is the user who makes a request.
type Requester struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Stored is the form of a kind in the store.
type Stored struct {
	// Prefix is the key below the root, without slashes at its ends, such as
	// "pods", "minions", "services/specs".
	Prefix string
	// Version is the group version of the stored form; zero means the served
	// one.
	Version schema.GroupVersion
	// New makes the stored Go type, and To and From convert; all nil when the
	// stored form is the served one, or differs from it in the version's name
	// alone.
	New  func() runtime.Object
	To   func(served Object) (Object, error)
	From func(stored Object) (Object, error)
	// JSON stores objects as JSON, as Kubernetes does with a few groups.
	JSON bool
	// Expires marks kinds whose objects live for the server's event TTL.
	Expires bool
}

// SelectableField is a field that a selector may name.
type SelectableField struct {
	// Label is the name in selectors, such as "spec.nodeName".
	Label string
	// Path is the dotted path of JSON names to a string, boolean or integer
	// field; empty means Label. It is read from the encoded object.
	Path string
	// Absent is the value of an object that does not have the field: a false
	// or a zero that its encoding leaves out.
	Absent string
	// Func computes the value where a path does not do.
	Func func(Object) string
	// Index keeps watchers that ask for one value of this field in an index.
	Index bool
	// Alias labels select the same field but are not told in messages.
	Aliases []string
}

// Column declares one column of the Table representation. Priority above 0 is
// shown in wide output only.
type Column struct {
	Name, Type, Format, Description string
	Priority                        int32
	// Cell computes the cell: a string, int64, float64, bool, nil, []string
	// or an Age, which is rendered when the table is sent.
	Cell func(Object) any
}

// Age is a cell that shows the time since then, as in "5d", or "<unknown>" for
// a zero time.
type Age struct {
	Since metav1.Time
	// Before and After stand around the age, as in "3 (5d ago)".
	Before, After string
}

// Subresource declares a path below an object.
type Subresource struct {
	Name string
	// GVK of what is sent and received; Kind alone for kinds of the parent's
	// own group and version.
	GVK   schema.GroupVersionKind
	Verbs []string
	// New makes the Go type where it is not the parent's.
	New func() runtime.Object

	// Prepare makes a sub-resource over the parent object (status, approval,
	// finalize): it resets in obj everything that the sub-resource must not
	// change, to what old has. Nil for "status" means the usual rule: only
	// the status changes.
	Prepare func(obj, old Object)
	// ValidateUpdate checks a change through the sub-resource.
	ValidateUpdate func(obj, old Object) field.ErrorList
	// Scale makes it a scale sub-resource.
	Scale *Scale

	// Resets are the dotted paths of fields that a write through the
	// sub-resource leaves as they are: who sends them does not own them. Nil for
	// "status" means spec. Owns, if set, are the only ones that it changes; * is
	// any element of a list or map.
	Resets, Owns []string
}

// Scale says where a kind keeps what autoscaling/v1 Scale shows.
type Scale struct {
	Replicas    func(Object) int32
	SetReplicas func(Object, int32)
	// Status returns the observed replicas and the selector in text form.
	Status func(Object) (replicas int32, selector string)
}

// AllVerbs are the verbs of an ordinary kind.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// GroupVersion of the served form.
func (k *Kind) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: k.Version}
}

// GVK of the served form.
func (k *Kind) GVK() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.Kind) }

// GVR of the served form.
func (k *Kind) GVR() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.Resource) }

// GroupResource names the resource in messages. A kind that is stored as one of
// another group is named by that.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.StoredGVK().Group, Resource: k.Resource}
}

// GroupKind names the kind in messages, likewise.
func (k *Kind) GroupKind() schema.GroupKind { return k.StoredGVK().GroupKind() }

// StoredGVK of the stored form.
func (k *Kind) StoredGVK() schema.GroupVersionKind {
	if k.Stored.Version.Empty() {
		return k.GVK()
	}
	return k.Stored.Version.WithKind(k.Kind)
}

// HasVerb tells whether the resource answers a verb.
func (k *Kind) HasVerb(verb string) bool {
	verbs := k.Verbs
	if verbs == nil {
		verbs = AllVerbs
	}
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// Subresource returns the declaration of a sub-resource, nil when there is none.
func (k *Kind) Subresource(name string) *Subresource {
	for i := range k.Subresources {
		if k.Subresources[i].Name == name {
			return &k.Subresources[i]
		}
	}
	return nil
}

// HasStatus tells whether the kind has the status sub-resource.
func (k *Kind) HasStatus() bool { return k.Subresource("status") != nil }

// HasVerb tells whether the sub-resource answers a verb.
func (s *Subresource) HasVerb(verb string) bool {
	for _, v := range s.Verbs {
		if v == verb {
			return true
		}
	}
	return false
}

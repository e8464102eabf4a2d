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

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/transcode"
)

// Object is what every kind's Go type is.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind declares one resource in one served version.
type Kind struct {
	Names
	// Verbs as discovery tells them, sorted; nil means AllVerbs.
	Verbs []string
	// Virtual kinds are operations and are not stored (access reviews,
	// bindings, component statuses); a handler of endpoints answers them.
	Virtual bool
	// Gate, if set, has to be on for the kind to be served.
	Gate features.Gate

	// New and NewList make empty values of the Go types.
	New     func() runtime.Object
	NewList func() runtime.Object
	// Parts takes objects apart.
	Parts Parts
	// MergeType tells how the fields of objects without a Go type are merged;
	// nil means as their values tell: maps by key, lists as a whole.
	MergeType func() typed.ParseableType
	// Document, for kinds without Go types, says how their objects are read.
	Document *Document
	// Stored says where and in which form objects are kept.
	Stored Stored

	// Default fills what the client left out (also run on objects that were
	// stored by an older server).
	Default func(Object)
	// Read adjusts an object that was decoded from storage, after Default. Values that
	// it would change must fail the rules of Filled.
	Read func(Object)
	// Filled, for kinds with a Default, has the rules by which a stored object is seen
	// to be as Default leaves it, without decoding it. Nil means that it has to be
	// decoded to know.
	Filled func() []transcode.Rule
	// Declared has the rules that the fields of the type declare, which
	// Create.Validate and Update.Validate have as well (marked as covered there).
	// The gates DeclarativeValidation and DeclarativeValidationTakeover say which
	// count.
	Declared func(Object) field.ErrorList

	Create Create
	Update Update
	Delete Delete
	Shown  Shown

	// Subresources in the order of their names.
	Subresources []Subresource
}

// Names are what a kind is called, and what its objects may be called.
type Names struct {
	Group, Version string
	// Resource is the plural name in paths, Singular and ShortNames are what
	// clients may write instead.
	Resource, Singular string
	// Kind is the name of the object's type, List a collection's; empty means
	// Kind + "List".
	Kind, List string
	ShortNames []string
	Categories []string
	Namespaced bool

	// ValidateName returns what is wrong with the name of an object; prefix is
	// true for a generateName. Nil means DNSSubdomain.
	ValidateName func(name string, prefix bool) []string
	// ValidateNameOf takes its place for objects whose names follow from what
	// they say.
	ValidateNameOf func(obj Object, name string, prefix bool) []string
	// AnyFinalizer allows finalizers without a domain, as custom resources have
	// them.
	AnyFinalizer bool
}

// Parts tells what of an object is its status and what, beside the metadata, its
// specification. A kind with the status sub-resource has all three, a kind that
// counts generations has SpecChanged.
type Parts struct {
	// CopyStatus sets the status of an object to that of another one, which nil
	// stands for an empty one, CopySpec sets all but metadata and status. The two
	// objects may share memory afterwards.
	CopyStatus func(to, from Object)
	CopySpec   func(to, from Object)
	// SpecChanged tells whether anything but metadata and status differs.
	SpecChanged func(obj, old Object) bool
}

// Create says what is special about the creation of an object.
type Create struct {
	// KeepStatus keeps the status that a client sends.
	KeepStatus bool
	// Closed, if set, is why no objects are created any more, except by an apply.
	Closed string
	// Prepare resets what a client must not set, beyond the status, which is
	// reset for every kind that has the sub-resource.
	Prepare func(Object)
	// Stamp, if set, records in a new object who creates it. It runs right after
	// Prepare.
	Stamp func(Object, Requester)
	// Validate checks an object. The metadata's own rules are checked for every
	// kind, before these. Nil means that there is nothing more to check.
	Validate func(Object) field.ErrorList
	// Warnings are sent as Warning headers, here and, unless Update has its own,
	// on an update.
	Warnings func(Object) []string
	// EarlyWarnings, if set, are sent before Warnings, also with an object that Validate
	// rejects. They are about the object as it is before Prepare.
	EarlyWarnings func(Object) []string
}

// Update says what is special about a change of an object. In all functions old
// is the live object.
type Update struct {
	// Generation makes the server own metadata.generation: 1 at creation, one
	// more with each change of anything but metadata and status.
	Generation bool
	// Creates lets PUT create an object that does not exist.
	Creates bool
	// NeedsVersion refuses updates without a resourceVersion.
	NeedsVersion bool
	// Resets are the dotted paths of fields that Prepare leaves as they are: who
	// sends them, at the creation as well, does not own them. Nil means the status,
	// where the kind has one.
	Resets []string
	// Prepare resets what a client must not change, beyond the status; obj may
	// share memory with old afterwards.
	Prepare func(obj, old Object)
	// Validate checks a change, as Create.Validate does an object.
	Validate func(obj, old Object) field.ErrorList
	// Warnings, if set, takes the place of Create.Warnings.
	Warnings func(obj, old Object) []string
}

// Delete says what is special about the deletion of an object.
type Delete struct {
	// ReturnObject makes DELETE answer the deleted object instead of a Status.
	ReturnObject bool
	// Never, if set, says why an object of a name is never deleted; empty for one
	// that may be.
	Never func(name string) string
	// GracePeriod, for kinds that are deleted gracefully, is the number of
	// seconds to wait, given what the client asked for (nil: nothing). Nil
	// means immediate deletion.
	GracePeriod func(obj Object, asked *int64) int64
	// Begin changes an object whose deletion begins but which must stay for now;
	// Held tells whether something other than metadata.finalizers keeps it (a
	// namespace's spec.finalizers).
	Begin func(Object)
	Held  func(Object) bool
	// Mark, if set, is all that the first deletion does: it marks an object that
	// stays for now, whatever the client asked for. Finalizers, grace period and
	// generation are left to it.
	Mark func(obj Object, now metav1.Time)
	// Orphan makes deletion orphan dependents unless asked otherwise.
	// OrphanWarning is sent as a Warning header when that happens because the
	// client asked for nothing.
	Orphan        bool
	OrphanWarning string
}

// Shown says how objects are found and shown.
type Shown struct {
	// Verbs as discovery tells them, where that is not the list of Kind.Verbs.
	Verbs []string
	// Deprecated, if set, is sent as a Warning header on every request.
	Deprecated string
	// RemovedRelease is the version that no longer serves a deprecated kind,
	// such as "1.34". It is empty where no removal is planned.
	RemovedRelease string
	// Selectable are the fields that fieldSelector may name, beyond
	// metadata.name and metadata.namespace.
	Selectable []SelectableField
	// LabelErrorsNameKind makes the error of an unknown field label name the kind.
	LabelErrorsNameKind bool
	// Columns of the Table representation; nil means Name and Created At.
	// OfStored computes their cells from the stored form of an object.
	Columns  []Column
	OfStored bool
	// RowConditions, if set, returns the conditions of an object's row in a
	// Table; nil when it has none.
	RowConditions func(Object) []metav1.TableRowCondition
	// RowOrder, if set, returns the rank of an object among the rows of a Table of a list. Rows
	// of the same rank are in the order of their names.
	RowOrder func(Object) int
	// Reads are the fields that Columns and RowConditions look at, by their JSON names
	// with dots, and all in them; nothing else is decoded for a Table. Nil means all.
	Reads []string
	// Reuse, if set, empties an object of which Reads were decoded, so that another can be
	// decoded into its memory.
	Reuse func(Object)
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
	// Apart, if set, spares decoding what is large in objects.
	Apart *Apart
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
	// Own keeps Label to the server: clients know the aliases alone.
	Own bool
}

// Column declares one column of the Table representation. Priority above 0 is
// shown in wide output only. One without a name has cells and is not told among
// the columns.
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
	// Warnings are sent as Warning headers of a change through the sub-resource.
	Warnings func(Object) []string
	// Connect makes it a connection to what stands behind the object, which lasts
	// as long as the client likes and takes and gives any media type. Deep gives
	// it all paths below its own.
	Connect, Deep bool
	// Scale makes it a scale sub-resource.
	Scale *Scale

	// Resets are the dotted paths of fields that a write through the
	// sub-resource leaves as they are: who sends them does not own them. Nil for
	// "status" means spec. Owns, if set, are the only ones that it changes; * is
	// any element of a list or map.
	Resets, Owns []string
}

// AllVerbs are the verbs of an ordinary kind.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// GroupVersion of the served form.
func (k *Kind) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: k.Version}
}

// GVK of the served form.
func (k *Kind) GVK() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.Kind) }

// ListKind is the name of a collection's type.
func (n *Names) ListKind() string {
	if n.List != "" {
		return n.List
	}
	return n.Kind + "List"
}

// GVR of the served form.
func (k *Kind) GVR() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.Resource) }

// GroupResource names the resource in messages.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// StoredGroupResource identifies the resource in the store. Kinds of two groups that share a place
// there have the same.
func (k *Kind) StoredGroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.StoredGVK().Group, Resource: k.Resource}
}

// GroupKind names the kind in messages. A kind that is stored as one of another group is named by that.
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

// ResetFields returns the dotted paths of fields that a write through a sub-resource, or
// through the object's own path, leaves as they are.
func (k *Kind) ResetFields(sub *Subresource) []string {
	switch {
	case sub == nil && k.Update.Resets == nil && k.HasStatus():
		return []string{"status"}
	case sub == nil:
		return k.Update.Resets
	case sub.Resets == nil && sub.Name == "status":
		return []string{"spec"}
	}
	return sub.Resets
}

// HasVerb tells whether the sub-resource answers a verb.
func (s *Subresource) HasVerb(verb string) bool {
	for _, v := range s.Verbs {
		if v == verb {
			return true
		}
	}
	return false
}

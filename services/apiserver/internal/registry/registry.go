// Package registry declares the resources that the server serves. The packages of api/kinds, one
// for each API group, hold the kinds: all properties of a kind are in its file, as a Kind value.
// Generic code (handlers, codec, discovery, openapi, watch cache) uses these values. A Catalog
// combines the kinds and is immutable. The package does not store, serve or encode objects.
package registry

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/json/transcode"
)

// Object is an API object. The Go type of every kind implements it.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind declares one resource in one served version.
type Kind struct {
	Names
	// Verbs are the verbs in discovery, sorted; nil means AllVerbs.
	Verbs []string
	// Virtual kinds are operations and are not stored (access reviews, bindings, component
	// statuses). Dedicated handlers serve them.
	Virtual bool
	// Gate, if set, must be enabled for the kind to be served.
	Gate features.Gate

	// New and NewList return empty values of the Go types.
	New     func() runtime.Object
	NewList func() runtime.Object
	// Parts accesses the spec and the status of objects.
	Parts SpecStatusAccessors
	// MergeType returns the merge rules of objects without a Go type. nil means that they follow
	// from the values: maps merge by key, lists are atomic.
	MergeType func() typed.ParseableType
	// Document, for kinds without Go types, defines how their objects are processed.
	// UnservedVersions holds the versions of such a kind that are not served. Managers keep the
	// ownership of fields that is recorded in these versions.
	Document         *Document
	UnservedVersions []*Kind
	// Stored defines the key and the form of stored objects.
	Stored StorageForm

	// Convertible, if set, returns an error if a client's object cannot be converted to the
	// internal form of Kubernetes. A body with such an object is rejected like one that cannot be
	// decoded.
	Convertible func(Object) error
	// Default sets fields that the client omitted. It also runs on objects that an older server
	// stored.
	Default func(Object)
	// AfterDecode adjusts an object that was decoded from storage, after Default. An object that
	// satisfies DefaultedRules may be served without being decoded, so every value that AfterDecode
	// would change must violate these rules.
	AfterDecode func(Object)
	// DefaultedRules, for kinds with a Default, returns rules that determine, without decoding it,
	// whether a stored object has all defaults. Nil means that only decoding can determine it.
	DefaultedRules func() []transcode.Rule
	// DeclarativeValidation runs the declarative validation of the type. Create.Validate and
	// Update.Validate include the same rules, marked as covered. The gates DeclarativeValidation
	// and DeclarativeValidationTakeover determine whose errors apply.
	DeclarativeValidation func(Object) field.ErrorList

	Create       Create
	Update       Update
	Delete       Delete
	Presentation Presentation

	// Subresources are sorted by name.
	Subresources []Subresource
}

// Names holds the names of a kind, and the rules for the names of its objects.
type Names struct {
	Group, Version string
	// Resource is the plural name in paths. Singular and ShortNames are alternatives that clients
	// may accept.
	Resource, Singular string
	// Kind is the name of the object's type. List is the name of a collection's type; empty means
	// Kind + "List".
	Kind, List string
	ShortNames []string
	Categories []string
	Namespaced bool

	// ValidateName returns the errors of an object's name; prefix is true for a generateName. Nil
	// means DNSSubdomain.
	ValidateName func(name string, prefix bool) []string
	// ValidateObjectName replaces ValidateName for objects whose names depend on their content.
	ValidateObjectName func(obj Object, name string, prefix bool) []string
	// AllowUnqualifiedFinalizers allows finalizers without a domain, as custom resources do.
	AllowUnqualifiedFinalizers bool
	// NamespaceRequired means that paths without a namespace, except those of lists and watches, do
	// not exist. It concerns namespaced kinds.
	NamespaceRequired bool
}

// SpecStatusAccessors accesses the status of an object and its specification, which is everything
// except status and metadata. A kind with the status subresource has all three functions. A kind
// that counts generations has SpecChanged.
type SpecStatusAccessors struct {
	// CopyStatus copies the status of another object to an object; nil stands for an object
	// without status. CopySpec sets everything except metadata and status. The two objects may
	// share memory afterwards.
	CopyStatus func(to, from Object)
	CopySpec   func(to, from Object)
	// SpecChanged reports whether anything except metadata and status differs.
	SpecChanged func(obj, old Object) bool
}

// Create holds the properties of creations.
type Create struct {
	// KeepStatus keeps the status that a client sends. Otherwise creation drops it.
	KeepStatus bool
	// DisabledReason, if set, is the reason why objects can no longer be created, except by an
	// apply.
	DisabledReason string
	// PrefixIsName means that metadata.generateName becomes the name without a suffix.
	PrefixIsName bool
	// NamedCreate means that a POST to the path of an object creates it.
	NamedCreate bool
	// Prepare resets fields that a client must not set, in addition to the status, which is reset
	// for every kind with the status subresource.
	Prepare func(Object)
	// RecordCreator, if set, records the creator in a new object. It runs right after Prepare.
	RecordCreator func(Object, Requester)
	// Validate validates an object whose metadata has been validated. Nil means that the kind has no
	// rules of its own.
	Validate func(Object) field.ErrorList
	// RulesFirst means that errors of the metadata are reported only if Validate finds none.
	RulesFirst bool
	// Warnings returns texts of Warning headers. They are also sent on an update, unless Update has
	// its own.
	Warnings func(Object) []string
	// EarlyWarnings, if set, returns warnings that are sent before Warnings, even if Validate
	// rejects the object. They are about the object before Prepare.
	EarlyWarnings func(Object) []string
}

// Update holds the properties of changes. In all functions, old is the live object.
type Update struct {
	// Generation makes the server set metadata.generation: 1 at creation, incremented by each
	// change of anything except metadata and status.
	Generation bool
	// AllowCreateOnUpdate makes PUT create an object that does not exist.
	AllowCreateOnUpdate bool
	// RequireResourceVersion rejects updates without a resourceVersion.
	RequireResourceVersion bool
	// ResetFields are the dotted paths of fields that Prepare resets. A manager that sends them,
	// also at creation, does not own them. Nil means the status, if the kind has one.
	ResetFields []string
	// Prepare resets fields that a client must not change, in addition to the status. obj may share
	// memory with old afterwards.
	Prepare func(obj, old Object)
	// Validate validates a change, like Create.Validate.
	Validate func(obj, old Object) field.ErrorList
	// Order is the order of the rules of a change.
	Order Order
	// Warnings, if set, replaces Create.Warnings.
	Warnings func(obj, old Object) []string
}

// Order lists the rules that validate a change to objects of a kind. Their errors are reported in
// this order, after the errors of the rules that all kinds share. Nil means MetaUpdateRules,
// UpdateRules.
//
// The order follows the calls in the kind's update validation in Kubernetes. Some kinds validate a
// changed object also like a new one, before or after they validate the change. A rule that
// Kubernetes calls twice is listed twice, and its errors are reported twice. For example,
// {MetaRules, UpdateRules} first validates the metadata like the metadata of a new object, and
// then the other fields.
type Order []Rule

// Rule is a part of the rules for a change.
type Rule uint8

// The rules for a change.
const (
	// MetaUpdateRules validates the change of the metadata, such as immutable fields.
	MetaUpdateRules Rule = iota + 1
	// MetaRules validates the metadata like the metadata of a new object.
	MetaRules
	// CreateRules is Create.Validate.
	CreateRules
	// UpdateRules is Update.Validate, or the validation of the subresource.
	UpdateRules
)

// Delete holds the properties of deletions.
type Delete struct {
	// ReturnObject makes DELETE return the deleted object instead of a Status. NoTable makes it
	// return that Status even to a client that requests a Table.
	ReturnObject, NoTable bool
	// ForbiddenReason, if set, returns the reason why the object of a name cannot be deleted, or ""
	// if it can.
	ForbiddenReason func(name string) string
	// GracePeriod, for kinds with graceful deletion, returns the grace period in seconds. requested
	// is the client's value or nil. A nil function means immediate deletion.
	GracePeriod func(obj Object, requested *int64) int64
	// BeginDeletion changes an object when its deletion begins, if the object is not removed at once.
	// RemovalBlocked reports whether anything other than metadata.finalizers keeps it (a
	// namespace's spec.finalizers).
	BeginDeletion  func(Object)
	RemovalBlocked func(Object) bool
	// TwoPhase means that the first deletion never removes the object, and that deletions have no
	// effect while RemovalBlocked, which must be set, reports true.
	TwoPhase bool
	// MarkDeletion, if set, is the only effect of the first deletion: it marks an object that
	// remains, regardless of the options. It sets finalizers, grace period and generation itself.
	MarkDeletion func(obj Object, now metav1.Time)
	// Orphan makes deletions orphan dependents by default. OrphanWarning is sent as a Warning
	// header when the client sets no policy.
	Orphan        bool
	OrphanWarning string
	// NoDependents means that propagation policies have no effect, because objects of the kind own
	// no other objects.
	NoDependents bool
}

// Presentation defines how objects are selected and displayed.
type Presentation struct {
	// Verbs are the verbs in discovery if they differ from Kind.Verbs.
	Verbs []string
	// Deprecated, if set, is sent as a Warning header on every request that has a handler.
	// DeprecatedAlways sends it on all other requests, too.
	Deprecated       string
	DeprecatedAlways bool
	// RemovedRelease is the version that no longer serves a deprecated kind, such as "1.34". It is
	// empty if no removal is planned.
	RemovedRelease string
	// Selectable holds the fields that fieldSelector may use, in addition to metadata.name and
	// metadata.namespace.
	Selectable []SelectableField
	// UnknownLabel, if set, returns the error of an unknown field label.
	UnknownLabel func(kind schema.GroupVersionKind, label string) error
	// Columns are the columns of the Table representation; nil means Name and Created At.
	// ColumnsFromStored computes their cells from the stored form of an object.
	Columns           []Column
	ColumnsFromStored bool
	// RowConditions, if set, returns the conditions of an object's row in a Table, or nil.
	RowConditions func(Object) []metav1.TableRowCondition
	// RowOrder, if set, returns the rank of an object among the rows of a list in a Table. Rows of
	// the same rank are ordered by name.
	RowOrder func(Object) int
	// ColumnFields holds the fields that Columns and RowConditions use, as dotted JSON paths that
	// include all fields below. Only these are decoded for a Table. Nil means all.
	ColumnFields []string
	// ClearColumnFields, if set, clears an object with the fields of ColumnFields, so that another
	// can be decoded into its memory.
	ClearColumnFields func(Object)
}

// Requester is the user that makes a request.
type Requester struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// SelectableField is a field that a selector may use.
type SelectableField struct {
	// Label is the name in selectors, such as "spec.nodeName".
	Label string
	// Path is the dotted path of JSON names to a string, boolean or integer field; empty means
	// Label. It is read from the encoded object.
	Path string
	// Value computes the value if a path is not sufficient.
	Value func(Object) string
	// Index keeps watchers that select one value of this field in an index.
	Index bool
	// Aliases are labels for the same field that messages do not mention.
	Aliases []string
	// Reserved reserves Label for the server: clients can use only the aliases.
	Reserved bool
}

// Column declares one column of the Table representation. A Priority above 0 limits it to wide
// output. A column without a name has cells but is omitted from the column definitions.
type Column struct {
	Name, Type, Format, Description string
	Priority                        int32
	// Cell returns the cell: a string, int64, float64, bool, nil, []string or an Age, which is
	// formatted when the table is sent.
	Cell func(Object) any
}

// Age is a cell with the time since Since, such as "5d", or "<unknown>" for a zero time.
type Age struct {
	Since metav1.Time
	// Prefix and Suffix enclose the age, as in "3 (5d ago)".
	Prefix, Suffix string
}

// AllVerbs are the verbs of an ordinary kind.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// GroupVersion returns the served group version.
func (k *Kind) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: k.Version}
}

// GVK returns the group, version and kind of the served form.
func (k *Kind) GVK() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.Kind) }

// ListKind returns the name of a collection's type.
func (n *Names) ListKind() string {
	if n.List != "" {
		return n.List
	}
	return n.Kind + "List"
}

// GVR returns the group, version and resource of the served form.
func (k *Kind) GVR() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.Resource) }

// GroupResource returns the resource as messages name it.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// HasFieldLabels reports whether the kind determines which fields selectors may use. All other
// kinds support metadata.name and metadata.namespace, even if they are cluster-scoped.
func (k *Kind) HasFieldLabels() bool { return k.Document != nil || len(k.Presentation.Selectable) > 0 }

// HasVerb reports whether the resource supports a verb.
func (k *Kind) HasVerb(verb string) bool {
	verbs := k.Verbs
	if verbs == nil {
		verbs = AllVerbs
	}
	return slices.Contains(verbs, verb)
}

package graph

import (
	"log/slog"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/controllers/internal/resources"
)

// Identity identifies an object by its coordinates and its uid.
type Identity struct {
	APIVersion, Kind, Namespace, Name string
	UID                               types.UID
}

// Coordinates returns the identity that a reference has without a namespace.
func Coordinates(r *metav1.OwnerReference) Identity {
	return Identity{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: r.UID}
}

// kind is an interned API version and kind.
type kind struct{ apiVersion, kind string }

// owner is an owner reference.
type owner struct {
	kind   unique.Handle[kind]
	name   string
	uid    uid
	blocks bool // blockOwnerDeletion
}

// flags is the state of a node.
type flags uint8

const (
	observed          flags = 1 << iota // a list or a watch has returned the object
	deleting                            // has a deletion timestamp
	orphaning                           // has the orphan finalizer
	foreground                          // has the foreground finalizer
	deletingDependent                   // is or was deleting with the foreground finalizer
	// nodeCounted marks a node that is in the counts of its resource.
	nodeCounted
)

// Node is an object. The fields are guarded by the lock of the graph. A Node is a key of work
// queues: an object has one node until it is removed.
type Node struct {
	uid        uid
	namespace  unique.Handle[string]
	name       string
	kind       unique.Handle[kind]
	resource   *resources.Resource // nil while virtual
	owners     []owner
	dependents map[*Node]struct{}
	epoch      uint32 // in which the object was last observed
	flags      flags
}

// LogValue implements slog.LogValuer. Other fields than the uid change concurrently.
func (n *Node) LogValue() slog.Value { return slog.StringValue(string(n.uid.unpack())) }

// hasFlag reports whether one of the flags is set.
func (n *Node) hasFlag(f flags) bool { return n.flags&f != 0 }

// set sets or clears flags.
func (n *Node) set(f flags, on bool) {
	n.flags &^= f
	if on {
		n.flags |= f
	}
}

// identity returns the identity of a node. The caller holds mu.
func (g *Graph) identity(n *Node) Identity {
	k := n.kind.Value()
	return Identity{APIVersion: k.apiVersion, Kind: k.kind, Namespace: n.namespace.Value(), Name: n.name, UID: g.text(n.uid)}
}

// identityOf returns the identity of an observed object.
func identityOf(r *resources.Resource, m *metav1.PartialObjectMetadata) Identity {
	return Identity{APIVersion: r.APIVersion(), Kind: r.Kind, Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

// identify sets the coordinates of a node.
func (n *Node) identify(id Identity) {
	n.kind = unique.Make(kind{id.APIVersion, id.Kind})
	n.namespace = unique.Make(id.Namespace)
	n.name = id.Name
}

// refersTo reports whether a reference of a dependent agrees with an identity: the same coordinates
// and, if the identity is namespaced, the same namespace.
func (n *Node) refersTo(o *owner, id Identity) bool {
	k := o.kind.Value()
	return k.apiVersion == id.APIVersion && k.kind == id.Kind && o.name == id.Name &&
		(id.Namespace == "" || id.Namespace == n.namespace.Value())
}

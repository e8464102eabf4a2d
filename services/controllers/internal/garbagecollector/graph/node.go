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

// Coordinates returns the identity that an owner reference states. It has no namespace.
func Coordinates(r *metav1.OwnerReference) Identity {
	return Identity{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: r.UID}
}

// apiKind is an interned API version and kind.
type apiKind struct{ apiVersion, kind string }

// owner is an owner reference.
type owner struct {
	kind   unique.Handle[apiKind]
	name   string
	uid    uid
	blocks bool // the field blockOwnerDeletion
}

// nodeFlags is the state of a node.
type nodeFlags uint8

const (
	flagObserved           nodeFlags = 1 << iota // a list or a watch has returned the object; otherwise the node is virtual
	flagDeleting                                 // the object has a deletion timestamp
	flagOrphaning                                // the object has the orphan finalizer
	flagForeground                               // the object has the foreground finalizer
	flagDeletingDependents                       // foreground deletion of the object has begun
	flagCounted                                  // Graph.counts includes the object
)

// Node represents an object. Its fields are guarded by the lock of the graph. An object has the same
// Node until it is removed, so work queues use the pointer as key.
type Node struct {
	uid        uid
	namespace  unique.Handle[string]
	name       string
	kind       unique.Handle[apiKind]
	resource   *resources.Resource // nil while virtual
	owners     []owner
	dependents map[*Node]struct{}
	epoch      uint32 // epoch in which the object was last observed; see Graph.StartList
	flags      nodeFlags
}

// LogValue implements slog.LogValuer. Other fields than the uid change concurrently.
func (n *Node) LogValue() slog.Value { return slog.StringValue(string(n.uid.canonicalUUID())) }

// hasFlag reports whether one of the flags is set.
func (n *Node) hasFlag(f nodeFlags) bool { return n.flags&f != 0 }

// setFlag sets or clears flags.
func (n *Node) setFlag(f nodeFlags, on bool) {
	n.flags &^= f
	if on {
		n.flags |= f
	}
}

// identity returns the identity of a node. The caller holds mu.
func (g *Graph) identity(node *Node) Identity {
	k := node.kind.Value()
	return Identity{
		APIVersion: k.apiVersion,
		Kind:       k.kind,
		Namespace:  node.namespace.Value(),
		Name:       node.name,
		UID:        g.originalUID(node.uid),
	}
}

// identityOf returns the identity of an observed object.
func identityOf(r *resources.Resource, m *metav1.PartialObjectMetadata) Identity {
	return Identity{APIVersion: r.APIVersion(), Kind: r.Kind, Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

// setCoordinates sets the coordinates of a node.
func (n *Node) setCoordinates(id Identity) {
	n.kind = unique.Make(apiKind{id.APIVersion, id.Kind})
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

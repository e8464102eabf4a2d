// Package node authorizes requests of nodes (specification: "Node authorization"). Nodes are users
// of the group system:nodes with names of the form system:node:<node>. A Graph knows which objects
// belong to which node; an Authorizer queries it.
//
// # Objects of a node
//
//	pod ──────────────► node          (bound to it)
//	secret, config map,
//	claim, service account,
//	resource claim ───► pod           (named by it)
//	volume ───────────► claim         (bound to it)
//	secret ───────────► volume        (that a kubelet needs to mount it)
//	volume attachment, resource slice ──► node
//
// The graph is flat. For each object that pods reference, it counts the referencing pods of each
// node. A query takes one or two lookups, independent of the number of pods. Mirror pods, which
// nodes create themselves, add no references.
//
// The caller follows the objects and calls Set and Delete. Queries are allowed at any time. The
// graph has one lock, which is a leaf.
package node

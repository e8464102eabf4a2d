// Package node decides what nodes may do (specification: "Node authorization"):
// users of the group system:nodes named system:node:<node>. A Graph knows which
// objects belong to which node; an Authorizer asks it.
//
// # What belongs to a node
//
//	pod ──────────────► node          (bound to it)
//	secret, config map,
//	claim, service account,
//	resource claim ───► pod           (named by it)
//	volume ───────────► claim         (bound to it)
//	secret ───────────► volume        (that a kubelet needs to mount it)
//	volume attachment, resource slice ──► node
//
// The graph is kept flat: for each object that pods name, how many pods of which
// node name it. A question is then one or two lookups, whatever the number of
// pods. Mirror pods, which nodes create themselves, lend nothing.
//
// Whoever follows the objects calls Set and Delete; questions may be asked at any
// time. The graph has one lock, a leaf.
package node

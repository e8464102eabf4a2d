package graph

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/controllers/internal/resources"
)

// StartList must be called before the objects of a complete list are observed. It returns the epoch
// of the list, for Sweep.
func (g *Graph) StartList() (epoch uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.epoch++
	return g.epoch
}

// Observe records the state of an object that a list or a watch returned.
func (g *Graph) Observe(r *resources.Resource, m *metav1.PartialObjectMetadata) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, _ := packUID(m.UID)
	n := g.nodes[u]
	var before nodeFlags
	if n == nil {
		n = &Node{uid: u}
		n.setCoordinates(identityOf(r, m))
		g.nodes[n.uid] = n
		g.keepNonCanonical(m.UID)
	} else {
		before = n.flags
		n = g.setObservedIdentity(n, identityOf(r, m))
	}
	if n.resource != r {
		g.setCounted(n, false)
		n.resource = r
	}
	n.epoch = g.epoch
	n.setFlag(flagObserved, true)
	n.setFlag(flagDeleting, m.DeletionTimestamp != nil || n.hasFlag(flagDeleting))
	n.setFlag(flagOrphaning, slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents))
	n.setFlag(flagForeground, slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents))
	g.setCounted(n, true)
	g.changeOwners(n, g.ownersOf(m.OwnerReferences))
	for i := range m.OwnerReferences {
		g.keepNonCanonical(m.OwnerReferences[i].UID)
	}
	g.schedulePropagation(n, before)
	g.Changed(r, n.namespace.Value(), false)
}

// setObservedIdentity sets the identity of a known node to the one under which its object was
// observed. If the node was virtual, dependents that refer to it by another identity may have an
// absent owner, so they are verified.
func (g *Graph) setObservedIdentity(n *Node, id Identity) *Node {
	before := g.identity(n)
	if before == id {
		return n
	}
	g.setCounted(n, false)
	n.setCoordinates(id)
	if n.hasFlag(flagObserved) {
		return n
	}
	for d := range n.dependents {
		if d.refersOnlyTo(n.uid, id) {
			continue
		}
		if id.Namespace != "" && d.namespace.Value() != id.Namespace {
			i := slices.IndexFunc(d.owners, func(o owner) bool { return o.uid == n.uid })
			g.Tasks.InvalidNamespace(g.identity(d), g.referencedIdentity(d, &d.owners[i]))
		}
		g.requestDelete(d)
	}
	return n
}

// referencedIdentity returns the identity that the owner reference ref of d states, in the
// namespace of d.
func (g *Graph) referencedIdentity(d *Node, ref *owner) Identity {
	k := ref.kind.Value()
	return Identity{
		APIVersion: k.apiVersion,
		Kind:       k.kind,
		Namespace:  d.namespace.Value(),
		Name:       ref.name,
		UID:        g.originalUID(ref.uid),
	}
}

// refersOnlyTo reports whether all references of a dependent to a uid agree with an identity.
func (n *Node) refersOnlyTo(u uid, id Identity) bool {
	for i := range n.owners {
		if o := &n.owners[i]; o.uid == u && !n.refersTo(o, id) {
			return false
		}
	}
	return true
}

// schedulePropagation schedules the work that a change of a node requires. before holds the flags
// of the last observation.
func (g *Graph) schedulePropagation(n *Node, before nodeFlags) {
	after := n.flags.propagationFlag()
	if after == before.propagationFlag() && before&flagObserved != 0 {
		return
	}
	switch after {
	case flagOrphaning:
		g.Tasks.Orphan(n, n.namespace.Value())
	case flagForeground:
		n.setFlag(flagDeletingDependents, true)
		for d := range n.dependents {
			g.requestDelete(d)
		}
		g.requestDelete(n)
	}
}

// propagationFlag returns how the dependents of a deleted object must be handled before it is
// removed: flagOrphaning, flagForeground, or 0 if the object is not deleted or need not wait.
func (f nodeFlags) propagationFlag() nodeFlags {
	switch {
	case f&flagDeleting == 0:
		return 0
	case f&flagOrphaning != 0:
		return flagOrphaning
	}
	return f & flagForeground
}

// changeOwners replaces the owners of a node. Owners that a removed reference blocked may now be
// deletable.
func (g *Graph) changeOwners(n *Node, owners []owner) {
	if slices.Equal(n.owners, owners) {
		return
	}
	before := n.owners
	n.owners = owners
	oldByUID := ownersByUID(before)
	newByUID := ownersByUID(owners)
	for i := range before {
		old := &before[i]
		current := newByUID[old.uid]
		node := g.nodes[old.uid]
		if node == nil {
			continue
		}
		if old.blocks && (current == nil || !current.blocks) {
			g.requestDelete(node)
		}
		if current == nil {
			g.removeDependent(n, node)
		}
	}
	var added []owner
	for i := range owners {
		if oldByUID[owners[i].uid] == nil {
			added = append(added, owners[i])
		}
	}
	g.addToOwners(n, added)
}

// ownersByUID indexes references by uid, because an object can have tens of thousands. If several
// have the same uid, it uses the first one.
func ownersByUID(refs []owner) map[uid]*owner {
	out := make(map[uid]*owner, len(refs))
	for i := range refs {
		if r := &refs[i]; out[r.uid] == nil {
			out[r.uid] = r
		}
	}
	return out
}

// removeDependent removes a dependent from an owner. A virtual owner without dependents is removed,
// because nothing else would remove it if its existence cannot be verified.
func (g *Graph) removeDependent(n, o *Node) {
	delete(o.dependents, n)
	if len(o.dependents) > 0 {
		return
	}
	o.dependents = nil
	if !o.hasFlag(flagObserved) {
		g.deleteFromMaps(o)
	}
}

// deleteFromMaps removes a node from the maps of the graph.
func (g *Graph) deleteFromMaps(n *Node) {
	delete(g.nodes, n.uid)
	delete(g.nonCanonical, n.uid)
}

// requestDelete passes a node to Tasks.Delete.
func (g *Graph) requestDelete(n *Node) { g.Tasks.Delete(n, n.namespace.Value()) }

// addToOwners adds n to the dependents of owners. An unknown owner becomes a virtual node, whose
// existence a worker must verify. If a reference may be wrong, a worker must verify n, too.
func (g *Graph) addToOwners(n *Node, owners []owner) {
	doubtful := false
	for i := range owners {
		ref := &owners[i]
		o := g.nodes[ref.uid]
		isNew := o == nil
		if isNew {
			o = &Node{uid: ref.uid, namespace: n.namespace, name: ref.name, kind: ref.kind}
			g.nodes[o.uid] = o
		}
		if o.dependents == nil {
			o.dependents = map[*Node]struct{}{}
		}
		o.dependents[n] = struct{}{}
		switch {
		case isNew:
			g.requestDelete(o)
		case doubtful:
		case o.namespace.Value() != "" && o.namespace != n.namespace:
			if o.hasFlag(flagObserved) {
				g.Tasks.InvalidNamespace(g.identity(n), g.referencedIdentity(n, ref))
			}
			doubtful = true
		case o.kind != ref.kind || o.name != ref.name:
			doubtful = true
		case o.namespace != n.namespace && !o.hasFlag(flagObserved):
			doubtful = true // another dependent, which is cluster-scoped, was seen first
		}
	}
	if doubtful {
		g.requestDelete(n)
	}
}

// Remove removes an object whose deletion was observed.
func (g *Graph) Remove(r *resources.Resource, m *metav1.PartialObjectMetadata) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, _ := packUID(m.UID)
	if n := g.nodes[u]; n != nil {
		g.removeNode(n, identityOf(r, m))
	}
}

// Sweep removes the objects of a resource that were not observed since a complete list began. That
// includes objects that were observed in other versions of the resource, whose monitor has stopped.
func (g *Graph) Sweep(r *resources.Resource, epoch uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	swept := r.GroupResource()
	for _, n := range g.nodes {
		if n.resource == nil || n.epoch >= epoch {
			continue
		}
		if n.resource == r || n.resource.GroupResource() == swept {
			g.removeNode(n, g.identity(n))
		}
	}
}

// removeNode removes a node. Its dependents have lost an owner, and owners that wait for their
// dependents may be deletable.
func (g *Graph) removeNode(n *Node, id Identity) {
	g.setCounted(n, false)
	g.deleteFromMaps(n)
	for i := range n.owners {
		if o := g.nodes[n.owners[i].uid]; o != nil {
			g.removeDependent(n, o)
		}
	}
	if len(n.dependents) > 0 {
		g.Tasks.Absent(id)
	}
	for d := range n.dependents {
		g.requestDelete(d)
	}
	for i := range n.owners {
		if o := g.nodes[n.owners[i].uid]; o != nil && o.hasFlag(flagDeletingDependents) {
			g.requestDelete(o)
		}
	}
	if n.resource != nil {
		g.Changed(n.resource, n.namespace.Value(), true)
	}
}

// RemoveVirtual is called when the API server has confirmed that no object with an identity exists.
// Dependents may refer to the same uid by other coordinates, which are not verified yet. If so, the
// node gets other coordinates, and RemoveVirtual returns true. The caller must verify the node
// again.
func (g *Graph) RemoveVirtual(id Identity) (more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, _ := packUID(id.UID)
	n := g.nodes[u]
	if n == nil {
		return false
	}
	if n.hasFlag(flagObserved) && g.identity(n) == id {
		g.removeNode(n, id)
		return false
	}
	var matching, others []*Node
	for d := range n.dependents {
		if d.refersOnlyTo(n.uid, id) {
			matching = append(matching, d)
		} else {
			others = append(others, d)
		}
	}
	if !n.hasFlag(flagObserved) && len(others) == 0 {
		g.removeNode(n, id)
		return false
	}
	if len(matching) > 0 {
		g.Tasks.Absent(id)
		for _, d := range matching {
			g.requestDelete(d)
		}
	}
	return !n.hasFlag(flagObserved) && g.identity(n) == id && g.replaceIdentity(n, others)
}

// replaceIdentity replaces the absent identity of a virtual node with the next identity, in the
// order of compareIdentities, by which dependents refer to it. After the last one it continues with
// the first. It returns false if there is no other identity.
func (g *Graph) replaceIdentity(n *Node, dependents []*Node) (replaced bool) {
	absent := g.identity(n)
	next, found := leastIdentity(n, dependents, func(id Identity) bool { return compareIdentities(id, absent) > 0 })
	if !found {
		next, found = leastIdentity(n, dependents, func(id Identity) bool { return compareIdentities(id, absent) != 0 })
	}
	if found {
		next.UID = absent.UID
		n.setCoordinates(next)
	}
	return found
}

// leastIdentity returns the first of the accepted identities by which dependents refer to a node,
// without the uid. An object can refer to a uid by tens of thousands of identities.
func leastIdentity(n *Node, dependents []*Node, accept func(Identity) bool) (first Identity, found bool) {
	for _, d := range dependents {
		for i := range d.owners {
			o := &d.owners[i]
			if o.uid != n.uid {
				continue
			}
			k := o.kind.Value()
			id := Identity{APIVersion: k.apiVersion, Kind: k.kind, Namespace: d.namespace.Value(), Name: o.name}
			if accept(id) && (!found || compareIdentities(id, first) < 0) {
				first, found = id, true
			}
		}
	}
	return first, found
}

// compareIdentities orders identities, except for their UIDs.
func compareIdentities(a, b Identity) int {
	for _, c := range []int{
		strings.Compare(a.APIVersion, b.APIVersion), strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
	} {
		if c != 0 {
			return c
		}
	}
	return 0
}

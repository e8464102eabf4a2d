package graph

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/controllers/internal/resources"
)

// StartList starts a new epoch and returns it. It must be called before the objects of a complete
// list are observed. After the list, Sweep removes the objects of earlier epochs.
func (g *Graph) StartList() (epoch uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.epoch++
	return g.epoch
}

// Observe records the state of an object that a list or a watch returned.
func (g *Graph) Observe(resource *resources.Resource, metadata *metav1.PartialObjectMetadata) {
	g.mu.Lock()
	defer g.mu.Unlock()

	// 1. Find the node or create it.
	uid, _ := packUID(metadata.UID)
	node := g.nodes[uid]
	var flagsBefore nodeFlags
	if node == nil {
		node = &Node{uid: uid}
		node.setCoordinates(identityOf(resource, metadata))
		g.nodes[node.uid] = node
		g.keepNonCanonical(metadata.UID)
	} else {
		flagsBefore = node.flags
		g.setObservedIdentity(node, identityOf(resource, metadata))
	}

	// 2. Record the state of the object and count it.
	if node.resource != resource {
		g.setCounted(node, false)
		node.resource = resource
	}
	node.epoch = g.epoch
	node.setFlag(flagObserved, true)
	node.setFlag(flagDeleting, metadata.DeletionTimestamp != nil || node.hasFlag(flagDeleting))
	node.setFlag(flagOrphaning, slices.Contains(metadata.Finalizers, metav1.FinalizerOrphanDependents))
	node.setFlag(flagForeground, slices.Contains(metadata.Finalizers, metav1.FinalizerDeleteDependents))
	g.setCounted(node, true)

	// 3. Connect the node with its owners.
	g.changeOwners(node, g.ownersOf(metadata.OwnerReferences))
	for i := range metadata.OwnerReferences {
		g.keepNonCanonical(metadata.OwnerReferences[i].UID)
	}

	// 4. Schedule the work that the change requires.
	g.schedulePropagation(node, flagsBefore)
	g.Changed(resource, node.namespace.Value(), false)
}

// setObservedIdentity sets the identity of a known node to the one under which its object was
// observed. If the node was virtual, dependents that refer to it by another identity may have an
// absent owner, so they are verified.
func (g *Graph) setObservedIdentity(node *Node, observed Identity) {
	if g.identity(node) == observed {
		return
	}
	g.setCounted(node, false)
	node.setCoordinates(observed)
	isVirtual := !node.hasFlag(flagObserved)
	if !isVirtual {
		return
	}
	for dependent := range node.dependents {
		if dependent.refersOnlyTo(node.uid, observed) {
			continue
		}
		if observed.Namespace != "" && dependent.namespace.Value() != observed.Namespace {
			i := slices.IndexFunc(dependent.owners, func(o owner) bool { return o.uid == node.uid })
			g.Tasks.InvalidNamespace(g.identity(dependent), g.referencedIdentity(dependent, &dependent.owners[i]))
		}
		g.requestDelete(dependent)
	}
}

// referencedIdentity returns the identity that the owner reference ref of a dependent states, in the
// namespace of the dependent.
func (g *Graph) referencedIdentity(dependent *Node, ref *owner) Identity {
	k := ref.kind.Value()
	return Identity{
		APIVersion: k.apiVersion,
		Kind:       k.kind,
		Namespace:  dependent.namespace.Value(),
		Name:       ref.name,
		UID:        g.originalUID(ref.uid),
	}
}

// refersOnlyTo reports whether all owner references of n with the uid u agree with an identity.
func (n *Node) refersOnlyTo(u uid, id Identity) bool {
	for i := range n.owners {
		if o := &n.owners[i]; o.uid == u && !n.refersTo(o, id) {
			return false
		}
	}
	return true
}

// schedulePropagation schedules the handling of a deleted object's dependents, if the object began
// to wait for it after the last observation. flagsBefore holds the flags of that observation, or 0
// if the object was not observed before.
func (g *Graph) schedulePropagation(node *Node, flagsBefore nodeFlags) {
	policy := node.flags.propagationFlag()
	wasObserved := flagsBefore&flagObserved != 0
	if wasObserved && policy == flagsBefore.propagationFlag() {
		return
	}
	switch policy {
	case flagOrphaning:
		g.Tasks.Orphan(node, node.namespace.Value())
	case flagForeground:
		node.setFlag(flagDeletingDependents, true)
		for d := range node.dependents {
			g.requestDelete(d)
		}
		g.requestDelete(node)
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

// changeOwners replaces the owner references of a node. An owner whose deletion node no longer blocks
// may now be deletable.
func (g *Graph) changeOwners(node *Node, owners []owner) {
	if slices.Equal(node.owners, owners) {
		return
	}
	before := node.owners
	node.owners = owners
	oldByUID := ownersByUID(before)
	newByUID := ownersByUID(owners)

	for i := range before {
		oldRef := &before[i]
		newRef := newByUID[oldRef.uid] // nil if the reference was removed
		ownerNode := g.nodes[oldRef.uid]
		if ownerNode == nil {
			continue
		}
		if oldRef.blocks && (newRef == nil || !newRef.blocks) {
			g.requestDelete(ownerNode)
		}
		if newRef == nil {
			g.removeDependent(node, ownerNode)
		}
	}

	var added []owner
	for i := range owners {
		if oldByUID[owners[i].uid] == nil {
			added = append(added, owners[i])
		}
	}
	g.addToOwners(node, added)
}

// ownersByUID indexes owner references by uid, so that changeOwners takes linear time: an object can
// have tens of thousands of references. Of several with the same uid, the index has the first.
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
func (g *Graph) removeDependent(dependent, owner *Node) {
	delete(owner.dependents, dependent)
	if len(owner.dependents) > 0 {
		return
	}
	owner.dependents = nil
	if !owner.hasFlag(flagObserved) {
		g.deleteFromMaps(owner)
	}
}

// deleteFromMaps removes a node from the maps of the graph.
func (g *Graph) deleteFromMaps(n *Node) {
	delete(g.nodes, n.uid)
	delete(g.nonCanonical, n.uid)
}

// requestDelete asks a worker to delete the object of n, if no owner keeps it.
func (g *Graph) requestDelete(n *Node) { g.Tasks.Delete(n, n.namespace.Value()) }

// addToOwners adds node to the dependents of owners. An unknown owner becomes a virtual node, and a
// worker is asked to verify that it exists. If a reference to a known owner may be wrong, a worker
// is asked to verify the references of node.
func (g *Graph) addToOwners(node *Node, owners []owner) {
	isDoubtful := false // a reference of node may be wrong
	for i := range owners {
		ref := &owners[i]
		ownerNode := g.nodes[ref.uid]
		isNew := ownerNode == nil
		if isNew {
			ownerNode = &Node{uid: ref.uid, namespace: node.namespace, name: ref.name, kind: ref.kind}
			g.nodes[ownerNode.uid] = ownerNode
		}
		if ownerNode.dependents == nil {
			ownerNode.dependents = map[*Node]struct{}{}
		}
		ownerNode.dependents[node] = struct{}{}

		isObserved := ownerNode.hasFlag(flagObserved)
		switch {
		case isNew:
			g.requestDelete(ownerNode)
		case isDoubtful:
		case ownerNode.namespace.Value() != "" && ownerNode.namespace != node.namespace:
			if isObserved {
				g.Tasks.InvalidNamespace(g.identity(node), g.referencedIdentity(node, ref))
			}
			isDoubtful = true
		case ownerNode.kind != ref.kind || ownerNode.name != ref.name:
			isDoubtful = true
		case ownerNode.namespace != node.namespace && !isObserved:
			// The virtual owner has no namespace, because its first dependent is cluster-scoped.
			isDoubtful = true
		}
	}
	if isDoubtful {
		g.requestDelete(node)
	}
}

// Remove removes an object whose deletion was observed.
func (g *Graph) Remove(resource *resources.Resource, object *metav1.PartialObjectMetadata) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, _ := packUID(object.UID)
	if n := g.nodes[u]; n != nil {
		g.removeNode(n, identityOf(resource, object))
	}
}

// Sweep removes the objects of a resource that were not observed since a complete list began. That
// includes objects that were observed in other versions of the resource, whose monitor has stopped.
func (g *Graph) Sweep(resource *resources.Resource, epoch uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	swept := resource.GroupResource()
	for _, node := range g.nodes {
		if node.resource == nil || node.epoch >= epoch {
			continue
		}
		if node.resource == resource || node.resource.GroupResource() == swept {
			g.removeNode(node, g.identity(node))
		}
	}
}

// removeNode removes a node. Its dependents have lost an owner, and an owner that waits for its
// dependents may now be deletable, so a worker is asked to check them.
func (g *Graph) removeNode(node *Node, id Identity) {
	g.setCounted(node, false)
	g.deleteFromMaps(node)
	for i := range node.owners {
		if o := g.nodes[node.owners[i].uid]; o != nil {
			g.removeDependent(node, o)
		}
	}
	if len(node.dependents) > 0 {
		g.Tasks.Absent(id)
	}
	for d := range node.dependents {
		g.requestDelete(d)
	}
	for i := range node.owners {
		if o := g.nodes[node.owners[i].uid]; o != nil && o.hasFlag(flagDeletingDependents) {
			g.requestDelete(o)
		}
	}
	if node.resource != nil {
		g.Changed(node.resource, node.namespace.Value(), true)
	}
}

// RemoveVirtual records that the API server has confirmed that no object with an identity exists.
// It removes the node with that uid, unless dependents refer to the uid by other coordinates, which
// are not verified yet. In that case the node gets such coordinates and RemoveVirtual returns true:
// the caller must verify the node again.
func (g *Graph) RemoveVirtual(id Identity) (mustVerifyAgain bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, _ := packUID(id.UID)
	node := g.nodes[u]
	if node == nil {
		return false
	}
	isVirtual := !node.hasFlag(flagObserved)
	if !isVirtual && g.identity(node) == id {
		g.removeNode(node, id)
		return false
	}

	var matching, others []*Node // dependents by whether they refer to the absent identity only
	for dependent := range node.dependents {
		if dependent.refersOnlyTo(node.uid, id) {
			matching = append(matching, dependent)
		} else {
			others = append(others, dependent)
		}
	}
	if isVirtual && len(others) == 0 {
		g.removeNode(node, id)
		return false
	}

	if len(matching) > 0 {
		g.Tasks.Absent(id)
		for _, dependent := range matching {
			g.requestDelete(dependent)
		}
	}
	return isVirtual && g.identity(node) == id && g.replaceIdentity(node, others)
}

// replaceIdentity gives a virtual node, whose identity is absent, the next identity by which its
// dependents refer to it. Identities have the order of compareIdentities, and the first follows the
// last. It returns false if there is no other identity.
func (g *Graph) replaceIdentity(node *Node, dependents []*Node) (replaced bool) {
	absent := g.identity(node)
	next, found := leastIdentity(node, dependents, func(id Identity) bool { return compareIdentities(id, absent) > 0 })
	if !found {
		next, found = leastIdentity(node, dependents, func(id Identity) bool { return compareIdentities(id, absent) != 0 })
	}
	if found {
		next.UID = absent.UID
		node.setCoordinates(next)
	}
	return found
}

// leastIdentity returns the least identity, in the order of compareIdentities, that accept accepts
// and by which dependents refer to a node. The result has no uid. It does not collect the
// identities, because an object can refer to a uid by tens of thousands of them.
func leastIdentity(node *Node, dependents []*Node, accept func(Identity) bool) (least Identity, found bool) {
	for _, dependent := range dependents {
		for i := range dependent.owners {
			o := &dependent.owners[i]
			if o.uid != node.uid {
				continue
			}
			k := o.kind.Value()
			id := Identity{APIVersion: k.apiVersion, Kind: k.kind, Namespace: dependent.namespace.Value(), Name: o.name}
			if accept(id) && (!found || compareIdentities(id, least) < 0) {
				least, found = id, true
			}
		}
	}
	return least, found
}

// compareIdentities orders identities, except for their UIDs.
func compareIdentities(a, b Identity) int {
	return cmp.Or(
		strings.Compare(a.APIVersion, b.APIVersion),
		strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
	)
}

package garbagecollector

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/controllers/internal/garbagecollector/graph"
)

const (
	finalizerOrphan     = metav1.FinalizerOrphanDependents
	finalizerForeground = metav1.FinalizerDeleteDependents
)

// attemptDelete deletes the object of a node if all its owners are absent or wait for it.
//
//  1. Skip an object that is being deleted, unless it waits for its dependents.
//  2. Read the object. If it does not exist, remove the node.
//  3. If the object waits for its dependents and none blocks it, remove its finalizer.
//  4. Look up the owners. If one of them keeps the object, remove only the references to the others.
//  5. Otherwise delete the object.
func (c *Controller) attemptDelete(ctx context.Context, node *graph.Node, state graph.State) error {
	if state.Deleting && !state.DeletingDependents {
		return nil
	}
	latest, err := c.getObject(ctx, state.Identity)
	switch {
	case isAbsent(err), err == nil && latest.UID != state.UID:
		return c.handleAbsence(state.Identity)
	case err != nil:
		return err
	case state.DeletingDependents:
		return c.finishForeground(ctx, node, state)
	case len(latest.OwnerReferences) == 0:
		return nil
	}
	owners, err := c.lookUpOwners(ctx, state.Identity, latest.OwnerReferences)
	if err != nil {
		return err
	}
	if owners.isKept {
		if len(owners.dangling)+len(owners.waiting) == 0 {
			return nil
		}
		// References to owners that wait must go too, so that those owners can be deleted.
		return c.removeOwners(ctx, state.Identity, append(owners.dangling, owners.waiting...))
	}

	policy := propagationOf(latest)
	if len(owners.waiting) > 0 && state.HasDependents {
		// An owner is deleted in the foreground, so its dependent is too.
		if err := c.breakCycle(ctx, node, latest); err != nil {
			return err
		}
		policy = metav1.DeletePropagationForeground
	}
	err = c.deleteUnchanged(ctx, state.Identity, latest, policy)
	if isAbsent(err) {
		return c.handleAbsence(state.Identity)
	}
	return err
}

// breakCycle makes the owner references of an object non-blocking if one of its dependents also
// waits for dependents. The two could otherwise wait for each other forever.
func (c *Controller) breakCycle(ctx context.Context, node *graph.Node, latest *metav1.PartialObjectMetadata) error {
	waits := func(d graph.Dependent) bool { return d.DeletingDependents }
	if !slices.ContainsFunc(c.graph.Dependents(node), waits) {
		return nil
	}
	return c.unblockOwners(ctx, c.graph.State(node).Identity, latest)
}

// propagationOf returns the policy that the finalizers of an object ask for.
func propagationOf(object *metav1.PartialObjectMetadata) metav1.DeletionPropagation {
	switch {
	case slices.Contains(object.Finalizers, finalizerOrphan):
		return metav1.DeletePropagationOrphan
	case slices.Contains(object.Finalizers, finalizerForeground):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// finishForeground removes the finalizer of an object that waits for its dependents, or asks to
// delete the dependents that block it.
func (c *Controller) finishForeground(ctx context.Context, n *graph.Node, state graph.State) error {
	blocked := false
	for _, d := range c.graph.Dependents(n) {
		if !d.Blocks {
			continue
		}
		blocked = true
		if !d.DeletingDependents {
			c.deleteQueue.Add(task{d.Node, d.Namespace})
		}
	}
	if blocked {
		return nil
	}
	return c.removeFinalizer(ctx, state.Identity, finalizerForeground)
}

// ownerStates groups the owners of an object by their state.
type ownerStates struct {
	isKept   bool        // an owner exists and does not wait for its dependents, so it keeps the object
	dangling []types.UID // uids of owners that do not exist
	waiting  []types.UID // uids of owners in foreground deletion, which wait for their dependents
}

// lookUpOwners reads the owners of an object from the API server and groups them by state.
func (c *Controller) lookUpOwners(ctx context.Context, id graph.Identity,
	refs []metav1.OwnerReference) (out ownerStates, err error) {
	for i := range refs {
		owner, err := c.getOwner(ctx, id, &refs[i])
		switch {
		case err != nil:
			return ownerStates{}, err
		case owner == nil:
			out.dangling = append(out.dangling, refs[i].UID)
		case owner.DeletionTimestamp != nil && slices.Contains(owner.Finalizers, finalizerForeground):
			out.waiting = append(out.waiting, refs[i].UID)
		default:
			out.isKept = true
		}
	}
	return out, nil
}

// getOwner returns the object that an owner reference refers to, or nil if it does not exist. id is
// the identity of the dependent. Absent owners are remembered, and not requested again.
func (c *Controller) getOwner(ctx context.Context, id graph.Identity,
	ref *metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	key := graph.Coordinates(ref)
	if c.knownAbsent(key) {
		return nil, nil
	}
	key.Namespace = id.Namespace
	if c.knownAbsent(key) {
		return nil, nil
	}
	resource, err := c.resourceOf(ctx, key)
	if err != nil {
		return nil, err
	}
	if !resource.Namespaced {
		key.Namespace = ""
	} else if id.Namespace == "" {
		return nil, errNamespacedOwner
	}
	latest, err := c.getObject(ctx, key)
	if isAbsent(err) || err == nil && latest.UID != ref.UID {
		c.rememberAbsent(key)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return latest, nil
}

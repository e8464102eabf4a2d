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
//  1. An object that is deleted already needs nothing, except if it waits for its dependents.
//  2. The object is read. If it does not exist, the node is removed.
//  3. An object that waits for its dependents loses its finalizer once none blocks it.
//  4. With an owner that keeps the object, only the references to other owners are removed.
//  5. Otherwise the object is deleted.
func (c *Controller) attemptDelete(ctx context.Context, n *graph.Node, s graph.State) error {
	if s.Deleting && !s.DeletingDependents {
		return nil
	}
	latest, err := c.getObject(ctx, s.Identity)
	switch {
	case isAbsent(err), err == nil && latest.UID != s.UID:
		return c.handleAbsence(s.Identity)
	case err != nil:
		return err
	case s.DeletingDependents:
		return c.finishForeground(ctx, n, s)
	case len(latest.OwnerReferences) == 0:
		return nil
	}
	owners, err := c.lookUpOwners(ctx, s.Identity, latest.OwnerReferences)
	if err != nil {
		return err
	}
	if owners.solid {
		if len(owners.dangling)+len(owners.waiting) == 0 {
			return nil
		}
		// References to owners that wait must go too, so that those owners can be deleted.
		return c.removeOwners(ctx, s.Identity, append(owners.dangling, owners.waiting...))
	}
	policy := propagationOf(latest)
	if len(owners.waiting) > 0 && s.HasDependents {
		if err := c.breakCycle(ctx, n, latest); err != nil {
			return err
		}
		policy = metav1.DeletePropagationForeground
	}
	err = c.deleteUnchanged(ctx, s.Identity, latest, policy)
	if isAbsent(err) {
		return c.handleAbsence(s.Identity)
	}
	return err
}

// breakCycle makes the references of an object non-blocking if one of its dependents waits for its
// own dependents, which may include the object.
func (c *Controller) breakCycle(ctx context.Context, n *graph.Node, latest *metav1.PartialObjectMetadata) error {
	waits := func(d graph.Dependent) bool { return d.DeletingDependents }
	if !slices.ContainsFunc(c.graph.Dependents(n), waits) {
		return nil
	}
	id := c.graph.State(n).Identity
	return c.unblockOwners(ctx, id, latest)
}

// propagationOf returns the policy that the finalizers of an object ask for.
func propagationOf(m *metav1.PartialObjectMetadata) metav1.DeletionPropagation {
	switch {
	case slices.Contains(m.Finalizers, finalizerOrphan):
		return metav1.DeletePropagationOrphan
	case slices.Contains(m.Finalizers, finalizerForeground):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// finishForeground removes the finalizer of an object that waits for its dependents, or asks to
// delete the dependents that block it.
func (c *Controller) finishForeground(ctx context.Context, n *graph.Node, s graph.State) error {
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
	return c.removeFinalizer(ctx, s.Identity, finalizerForeground)
}

// ownerStates groups the owners of an object by their state.
type ownerStates struct {
	solid    bool        // some owner exists and does not wait for its dependents
	dangling []types.UID // absent
	waiting  []types.UID // foreground deletion
}

// lookUpOwners looks the owners of an object up.
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
			out.solid = true
		}
	}
	return out, nil
}

// getOwner returns the object that a reference of an object refers to, or nil if it does not exist.
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
	r, err := c.resourceOf(ctx, key)
	if err != nil {
		return nil, err
	}
	if !r.Namespaced {
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

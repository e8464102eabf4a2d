package noderestriction

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"binnacle/libs/node"
	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
)

// pod checks a request for a pod, its status or its eviction.
func (p *Plugin) pod(ctx context.Context, a *attempt) error {
	switch a.Subresource {
	case "":
		switch a.Operation {
		case admission.Create:
			return p.mirrorPod(ctx, a)
		case admission.Delete:
			return p.bound(ctx, a, a.Name, "node %q can only delete pods with spec.nodeName set to itself")
		}
		return a.refuse("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, a.node)
	case "status":
		return a.podStatus()
	case "eviction":
		if a.Operation != admission.Create {
			return a.unexpectedOperation()
		}
		e, ok := a.Object.(*policyv1.Eviction)
		if !ok {
			return a.unexpectedType()
		}
		name := a.Name
		if name == "" {
			name = e.Name
		}
		if name == "" {
			return a.refuse("could not determine pod from request data")
		}
		return p.bound(ctx, a, name, "node %s can only evict pods with spec.nodeName set to itself")
	}
	return a.refuse("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Subresource)
}

// bound rejects pods of other nodes.
func (p *Plugin) bound(ctx context.Context, a *attempt, name, why string) error {
	pod, err := p.Objects.Pod(ctx, a.Namespace, name)
	switch {
	case err != nil:
		return a.unavailable(err)
	case pod.Spec.NodeName != a.node:
		return a.refuse(why, a.node)
	}
	return nil
}

// mirrorPod checks the mirror of a pod that a kubelet runs by itself. It must belong to the node,
// and must not refer to objects that the node could then read.
func (p *Plugin) mirrorPod(ctx context.Context, a *attempt) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return a.unexpectedType()
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return a.refuse("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, a.node)
	}
	if pod.Spec.NodeName != a.node {
		return a.refuse("node %q can only create pods with spec.nodeName set to itself", a.node)
	}
	if err := p.ownedByNode(ctx, a, pod); err != nil {
		return err
	}
	if what := node.ForbiddenMirrorPodReference(pod); what != "" {
		return a.refuse("node %q can not create pods that reference %s", a.node, what)
	}
	return nil
}

// ownedByNode checks that the only owner of a mirror pod is the node.
func (p *Plugin) ownedByNode(ctx context.Context, a *attempt, pod *corev1.Pod) error {
	switch len(pod.OwnerReferences) {
	case 0:
		return a.refuse("node %q can only create pods with an owner reference set to itself", a.node)
	case 1:
	default:
		return a.refuse("node %q can only create pods with a single owner reference set to itself", a.node)
	}
	owner := &pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != a.node:
		return a.refuse("node %q can only create pods with an owner reference set to itself", a.node)
	case owner.Controller == nil || !*owner.Controller:
		return a.refuse("node %q can only create pods with a controller owner reference set to itself", a.node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return a.refuse("node %q must not set blockOwnerDeletion on an owner reference", a.node)
	}
	n, err := p.Objects.Node(ctx, a.node)
	if err != nil {
		return a.unavailable(err)
	}
	if owner.UID != n.UID {
		return a.refuse("node %s UID mismatch: expected %s got %s", a.node, owner.UID, n.UID)
	}
	return nil
}

// podStatus checks that a status update concerns a pod of the node and changes only the status.
func (a *attempt) podStatus() error {
	if a.Operation != admission.Update {
		return a.unexpectedOperation()
	}
	pod, ok := a.Object.(*corev1.Pod)
	old, was := a.OldObject.(*corev1.Pod)
	switch {
	case !ok || !was:
		return a.unexpectedType()
	case old.Spec.NodeName != a.node:
		return a.refuse("node %q can only update pod status for pods with spec.nodeName set to itself", a.node)
	case !maps.Equal(pod.Labels, old.Labels):
		return a.refuse("node %q cannot update labels through pod status", a.node)
	case !semantic.Equal(pod.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses):
		return a.refuse("node %q cannot update resource claim statues", a.node) // the spelling is the API's
	}
	return nil
}

// claim lets a kubelet report the size and the resize status of a volume claim.
func (a *attempt) claim() error {
	if a.Subresource != "status" {
		return a.refuse("may only update PVC status")
	}
	if a.Operation != admission.Update {
		return a.unexpectedOperation()
	}
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	old, was := a.OldObject.(*corev1.PersistentVolumeClaim)
	if !ok || !was {
		return a.unexpectedType()
	}
	same := claim.DeepCopy()
	same.ResourceVersion = old.ResourceVersion
	same.ManagedFields = old.ManagedFields
	s := &same.Status
	s.Capacity = old.Status.Capacity
	s.Conditions = old.Status.Conditions
	s.AllocatedResources = old.Status.AllocatedResources
	s.AllocatedResourceStatuses = old.Status.AllocatedResourceStatuses
	same.TypeMeta = old.TypeMeta
	if !semantic.Equal(same, old) {
		return a.refuse("node %q is not allowed to update fields other than status.quantity and status.conditions", a.node)
	}
	return nil
}

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

// checkPod checks a request for a pod, its status or its eviction.
func (p *Plugin) checkPod(ctx context.Context, a *nodeRequest) error {
	switch a.Subresource {
	case "":
		switch a.Operation {
		case admission.Create:
			return p.checkMirrorPod(ctx, a)
		case admission.Delete:
			return p.requirePodOfNode(ctx, a, a.Name, "node %q can only delete pods with spec.nodeName set to itself")
		}
		return a.forbid("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, a.node)
	case "status":
		return a.checkPodStatus()
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
			return a.forbid("could not determine pod from request data")
		}
		return p.requirePodOfNode(ctx, a, name, "node %s can only evict pods with spec.nodeName set to itself")
	}
	return a.forbid("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Subresource)
}

// requirePodOfNode returns a Forbidden error unless the pod of a name runs on the node. message is
// its format; its only argument is the node's name.
func (p *Plugin) requirePodOfNode(ctx context.Context, a *nodeRequest, name, message string) error {
	pod, err := p.Objects.Pod(ctx, a.Namespace, name)
	switch {
	case err != nil:
		return a.lookupError(err)
	case pod.Spec.NodeName != a.node:
		return a.forbid(message, a.node)
	}
	return nil
}

// checkMirrorPod checks a mirror pod, which represents a static pod of the kubelet. It must belong to
// the node. It must not refer to objects, because the node could then read them.
func (p *Plugin) checkMirrorPod(ctx context.Context, a *nodeRequest) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return a.unexpectedType()
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return a.forbid("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, a.node)
	}
	if pod.Spec.NodeName != a.node {
		return a.forbid("node %q can only create pods with spec.nodeName set to itself", a.node)
	}
	if err := p.checkOwner(ctx, a, pod); err != nil {
		return err
	}
	if subject := node.ForbiddenMirrorPodReference(pod); subject != "" {
		return a.forbid("node %q can not create pods that reference %s", a.node, subject)
	}
	return nil
}

// checkOwner checks that the only owner of a mirror pod is the node.
func (p *Plugin) checkOwner(ctx context.Context, a *nodeRequest, pod *corev1.Pod) error {
	switch len(pod.OwnerReferences) {
	case 0:
		return a.forbid("node %q can only create pods with an owner reference set to itself", a.node)
	case 1:
	default:
		return a.forbid("node %q can only create pods with a single owner reference set to itself", a.node)
	}
	owner := &pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != a.node:
		return a.forbid("node %q can only create pods with an owner reference set to itself", a.node)
	case owner.Controller == nil || !*owner.Controller:
		return a.forbid("node %q can only create pods with a controller owner reference set to itself", a.node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return a.forbid("node %q must not set blockOwnerDeletion on an owner reference", a.node)
	}
	n, err := p.Objects.Node(ctx, a.node)
	if err != nil {
		return a.lookupError(err)
	}
	if owner.UID != n.UID {
		return a.forbid("node %s UID mismatch: expected %s got %s", a.node, owner.UID, n.UID)
	}
	return nil
}

// checkPodStatus checks that a status update is for a pod on the node, and changes neither labels
// nor the statuses of resource claims.
func (a *nodeRequest) checkPodStatus() error {
	if a.Operation != admission.Update {
		return a.unexpectedOperation()
	}
	pod, ok := a.Object.(*corev1.Pod)
	old, oldOK := a.OldObject.(*corev1.Pod)
	switch {
	case !ok || !oldOK:
		return a.unexpectedType()
	case old.Spec.NodeName != a.node:
		return a.forbid("node %q can only update pod status for pods with spec.nodeName set to itself", a.node)
	case !maps.Equal(pod.Labels, old.Labels):
		return a.forbid("node %q cannot update labels through pod status", a.node)
	case !semantic.Equal(pod.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses):
		return a.forbid("node %q cannot update resource claim statues", a.node) // the spelling is the API's
	}
	return nil
}

// checkClaim checks that a kubelet changes nothing in a volume claim except the capacity, the
// conditions and the resize status.
func (a *nodeRequest) checkClaim() error {
	if a.Subresource != "status" {
		return a.forbid("may only update PVC status")
	}
	if a.Operation != admission.Update {
		return a.unexpectedOperation()
	}
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	old, oldOK := a.OldObject.(*corev1.PersistentVolumeClaim)
	if !ok || !oldOK {
		return a.unexpectedType()
	}
	// unpermitted is the new claim with the permitted changes undone.
	unpermitted := claim.DeepCopy()
	unpermitted.ResourceVersion = old.ResourceVersion
	unpermitted.ManagedFields = old.ManagedFields
	s := &unpermitted.Status
	s.Capacity = old.Status.Capacity
	s.Conditions = old.Status.Conditions
	s.AllocatedResources = old.Status.AllocatedResources
	s.AllocatedResourceStatuses = old.Status.AllocatedResourceStatuses
	unpermitted.TypeMeta = old.TypeMeta
	if !semantic.Equal(unpermitted, old) {
		return a.forbid("node %q is not allowed to update fields other than status.quantity and status.conditions", a.node)
	}
	return nil
}

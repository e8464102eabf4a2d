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
func (p *Plugin) checkPod(ctx context.Context, req *nodeRequest) error {
	switch req.Subresource {
	case "":
		switch req.Operation {
		case admission.Create:
			return p.checkMirrorPod(ctx, req)
		case admission.Delete:
			return p.requirePodOfNode(ctx, req, req.Name, "node %q can only delete pods with spec.nodeName set to itself")
		}
		return req.forbid("unexpected operation %q, node %q can only create and delete mirror pods", req.Operation, req.node)
	case "status":
		return req.checkPodStatus()
	case "eviction":
		if req.Operation != admission.Create {
			return req.unexpectedOperation()
		}
		eviction, ok := req.Object.(*policyv1.Eviction)
		if !ok {
			return req.unexpectedType()
		}
		name := req.Name
		if name == "" {
			name = eviction.Name
		}
		if name == "" {
			return req.forbid("could not determine pod from request data")
		}
		return p.requirePodOfNode(ctx, req, name, "node %s can only evict pods with spec.nodeName set to itself")
	}
	return req.forbid("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", req.Subresource)
}

// requirePodOfNode returns a Forbidden error unless the pod of a name runs on the node. message is
// its format; its only argument is the node's name.
func (p *Plugin) requirePodOfNode(ctx context.Context, req *nodeRequest, name, message string) error {
	pod, err := p.Objects.Pod(ctx, req.Namespace, name)
	switch {
	case err != nil:
		return req.lookupError(err)
	case pod.Spec.NodeName != req.node:
		return req.forbid(message, req.node)
	}
	return nil
}

// checkMirrorPod checks a mirror pod, which represents a static pod of the kubelet. It must belong to
// the node. It must not refer to objects, because the node could then read them.
func (p *Plugin) checkMirrorPod(ctx context.Context, req *nodeRequest) error {
	pod, ok := req.Object.(*corev1.Pod)
	if !ok {
		return req.unexpectedType()
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return req.forbid("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, req.node)
	}
	if pod.Spec.NodeName != req.node {
		return req.forbid("node %q can only create pods with spec.nodeName set to itself", req.node)
	}
	if err := p.checkOwner(ctx, req, pod); err != nil {
		return err
	}
	if subject := node.ForbiddenMirrorPodReference(pod); subject != "" {
		return req.forbid("node %q can not create pods that reference %s", req.node, subject)
	}
	return nil
}

// checkOwner checks that the only owner of a mirror pod is the node.
func (p *Plugin) checkOwner(ctx context.Context, req *nodeRequest, pod *corev1.Pod) error {
	switch len(pod.OwnerReferences) {
	case 0:
		return req.forbid("node %q can only create pods with an owner reference set to itself", req.node)
	case 1:
	default:
		return req.forbid("node %q can only create pods with a single owner reference set to itself", req.node)
	}
	owner := &pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != req.node:
		return req.forbid("node %q can only create pods with an owner reference set to itself", req.node)
	case owner.Controller == nil || !*owner.Controller:
		return req.forbid("node %q can only create pods with a controller owner reference set to itself", req.node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return req.forbid("node %q must not set blockOwnerDeletion on an owner reference", req.node)
	}
	node, err := p.Objects.Node(ctx, req.node)
	if err != nil {
		return req.lookupError(err)
	}
	if owner.UID != node.UID {
		return req.forbid("node %s UID mismatch: expected %s got %s", req.node, owner.UID, node.UID)
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
	status := &unpermitted.Status
	status.Capacity = old.Status.Capacity
	status.Conditions = old.Status.Conditions
	status.AllocatedResources = old.Status.AllocatedResources
	status.AllocatedResourceStatuses = old.Status.AllocatedResourceStatuses
	unpermitted.TypeMeta = old.TypeMeta
	if !semantic.Equal(unpermitted, old) {
		return a.forbid("node %q is not allowed to update fields other than status.quantity and status.conditions", a.node)
	}
	return nil
}

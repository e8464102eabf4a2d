package noderestriction

import (
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/node"
	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/kinds/certificates"
)

// checkNode checks a write of a Node object. A kubelet may create and update only its own node, and
// must not set restricted labels, taints (except on create), owners or a config source.
func (a *nodeRequest) checkNode() error {
	if a.Name != a.node {
		return a.forbid("node %q is not allowed to modify node %q", a.node, a.Name)
	}
	if a.Operation != admission.Create && a.Operation != admission.Update {
		return nil
	}
	node, ok := a.Object.(*corev1.Node)
	if !ok {
		return a.unexpectedType()
	}
	if a.Operation == admission.Create {
		if node.Spec.ConfigSource != nil {
			return a.forbid("node %q is not allowed to create pods with a non-nil configSource", a.node)
		}
		if labels := restrictedChanges(node.Labels, nil); len(labels) > 0 {
			return a.forbid("node %q is not allowed to set the following labels: %s", a.node, strings.Join(labels, ", "))
		}
		// The garbage collector deletes a node with its owner. The node could then create itself
		// again without restrictions that were set on it.
		if len(node.OwnerReferences) > 0 {
			return a.forbid("node %q is not allowed to set ownerReferences", a.node)
		}
		return nil
	}
	old, ok := a.OldObject.(*corev1.Node)
	if !ok {
		return a.unexpectedType()
	}
	if c := node.Spec.ConfigSource; c != nil && !semantic.Equal(c, old.Spec.ConfigSource) {
		return a.forbid("node %q is not allowed to update configSource to a new non-nil configSource", a.node)
	}
	if !semantic.Equal(node.Spec.Taints, old.Spec.Taints) {
		return a.forbid("node %q is not allowed to modify taints", a.node)
	}
	if !semantic.Equal(node.OwnerReferences, old.OwnerReferences) {
		return a.forbid("node %q is not allowed to modify ownerReferences", a.node)
	}
	if labels := restrictedChanges(node.Labels, old.Labels); len(labels) > 0 {
		return a.forbid("is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}
	return nil
}

// checkSlice checks that a created or deleted ResourceSlice belongs to the node. Updates need no
// check here: they cannot change the node's name, and the node authorizer allows them only for
// slices of the node. The authorizer sees neither created objects nor the objects of a deleted
// collection.
func (a *nodeRequest) checkSlice() error {
	var obj any
	switch a.Operation {
	case admission.Create:
		obj = a.Object
	case admission.Delete:
		obj = a.OldObject
	default:
		return nil
	}
	name, ok := node.NodeOfSlice(obj)
	switch {
	case !ok:
		return a.forbid("unexpected type %T", obj)
	case name != a.node:
		return a.forbid(
			"can only %s ResourceSlice with the same NodeName as the requesting node",
			strings.ToLower(string(a.Operation)),
		)
	}
	return nil
}

// restrictedChanges returns the keys of labels that were added, changed or removed but that a
// kubelet must not set, because they affect scheduling. The keys are sorted.
func restrictedChanges(labels, old map[string]string) []string {
	found := map[string]bool{}
	compare := func(a, b map[string]string) {
		for k, v := range a {
			if other, ok := b[k]; (!ok || other != v) && !kubeletMaySet(k) {
				found[k] = true
			}
		}
	}
	compare(labels, old)
	compare(old, labels)
	return slices.Sorted(maps.Keys(found))
}

// kubeletMaySet reports whether a kubelet may set a label. It may set the labels that Kubernetes
// defines for kubelets, and labels outside of the domains of Kubernetes.
func kubeletMaySet(label string) bool {
	domain, _, ok := strings.Cut(label, "/")
	if !ok {
		return true
	}
	switch {
	case inDomain(domain, corev1.LabelNamespaceNodeRestriction):
		return false
	case !inDomain(domain, "kubernetes.io") && !inDomain(domain, "k8s.io"):
		return true
	case inDomain(domain, corev1.LabelNamespaceSuffixKubelet), inDomain(domain, corev1.LabelNamespaceSuffixNode):
		return true
	}
	return slices.Contains([]string{
		corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
		corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}, label)
}

// inDomain reports whether domain is parent or a subdomain of parent.
func inDomain(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// checkCertificate rejects a request for a kubelet certificate with the name of another node.
func (a *nodeRequest) checkCertificate() error {
	if a.Operation != admission.Create {
		return nil
	}
	object, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return a.unexpectedType()
	}
	s := object.Spec.SignerName
	if s != certificatesv1.KubeletServingSignerName && s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	csr, err := certificates.ParseRequest(object.Spec.Request)
	if err != nil {
		return a.forbid("unable to parse csr: %w", err)
	}
	if csr.Subject.CommonName != a.User.Name {
		return a.forbid("can only create a node CSR with CN=%s", a.User.Name)
	}
	return nil
}

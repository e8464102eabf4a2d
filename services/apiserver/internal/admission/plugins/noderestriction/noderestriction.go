// Package noderestriction limits the writes of kubelets (specification: "Authorization", Node
// authorization). A kubelet may write its own node without labels that affect scheduling, pods
// bound to it, its own lease and CSINode, tokens of its pods, and certificate requests for itself.
// The plugin complements the node authorizer, which does not see the contents of objects. It keeps
// no state.
package noderestriction

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/libs/node"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/security/authz"
)

// Name is the name of the plugin in flags and configuration.
const Name = "NodeRestriction"

// Objects looks up the objects that rules depend on. A missing object is a NotFound error.
type Objects interface {
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Node(ctx context.Context, name string) (*corev1.Node, error)
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
}

// Plugin implements admission.Mutator, although it changes nothing. Only the mutating phase sees
// deletions, and the object as the client sent it.
type Plugin struct {
	Objects    Objects
	Authorizer authz.Authorizer
	// Audiences limits tokens to audiences that the pod mounts (feature gate
	// ServiceAccountNodeAudienceRestriction).
	Audiences bool
	// AnyCertificate lets a node request certificates for other names (feature gate
	// AllowInsecureKubeletCertificateSigningRequests).
	AnyCertificate bool
}

// nodeRequest is a request of the kubelet on a node. node is the name of the node.
type nodeRequest struct {
	*admission.Request
	node string
}

// forbid returns a Forbidden error with a formatted reason.
func (a *nodeRequest) forbid(format string, args ...any) error {
	return apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, fmt.Errorf(format, args...))
}

// lookupError converts the error of a failed lookup. It returns a NotFound error unchanged, and a
// Forbidden error for any other one.
func (a *nodeRequest) lookupError(err error) error {
	if apierrors.IsNotFound(err) {
		return err
	}
	return a.forbid("%w", err)
}

func (a *nodeRequest) unexpectedType() error { return a.forbid("unexpected type %T", a.Object) }
func (a *nodeRequest) unexpectedOperation() error {
	return a.forbid("unexpected operation %q", a.Operation)
}

// resource is a resource in any version.
type resource struct{ group, name string }

// Admit implements admission.Mutator.
func (p *Plugin) Admit(ctx context.Context, attrs *admission.Request) error {
	name, ok := node.NodeOf(attrs.User)
	if !ok {
		return nil
	}
	req := &nodeRequest{attrs, name}
	if name == "" {
		return req.forbid("could not determine node from user %q", req.User.Name)
	}
	switch (resource{req.Resource.Group, req.Resource.Resource}) {
	case resource{"", "nodes"}:
		return req.checkNode()
	case resource{"", "pods"}:
		return p.checkPod(ctx, req)
	case resource{"", "persistentvolumeclaims"}:
		return req.checkClaim()
	case resource{"", "serviceaccounts"}:
		return p.checkToken(ctx, req)
	case resource{"coordination.k8s.io", "leases"}:
		return req.checkLease()
	case resource{"storage.k8s.io", "csinodes"}:
		if req.Name != req.node {
			return req.forbid("can only access CSINode with the same name as the requesting node")
		}
	case resource{"resource.k8s.io", "resourceslices"}:
		return req.checkSlice()
	case resource{"certificates.k8s.io", "certificatesigningrequests"}:
		if !p.AnyCertificate {
			return req.checkCertificate()
		}
	}
	return nil
}

// checkLease checks that a lease belongs to the node.
func (a *nodeRequest) checkLease() error {
	switch {
	case a.Namespace != api.NodeLeaseNamespace:
		return a.forbid("can only access leases in the %q system namespace", api.NodeLeaseNamespace)
	case a.Name != a.node:
		return a.forbid("can only access node lease with the same name as the requesting node")
	}
	return nil
}

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/selection"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
	"binnacle/libs/features"
	"binnacle/libs/rbac"
)

// User names and the group of nodes.
const (
	Group      = "system:nodes"
	userPrefix = "system:node:"
)

// NodeOf returns the name of the node that a user is, or false for other users. The name is empty
// for a node user without a node name.
func NodeOf(user *authorizer.User) (string, bool) {
	if user == nil {
		return "", false
	}
	name, ok := strings.CutPrefix(user.Name, userPrefix)
	return name, ok && user.InGroup(Group)
}

// Authorizer authorizes requests of nodes. It has no opinion on other requests.
type Authorizer struct {
	// readAllNodesAndPods lets nodes read all nodes, pods and resource slices, as before the
	// feature gate AuthorizeNodeWithSelectors.
	readAllNodesAndPods bool
	// serviceAccounts lets nodes read the service accounts of their pods.
	serviceAccounts bool

	graph       *Graph
	sharedRules *rbac.RuleSet
}

// NewAuthorizer returns an authorizer over a graph. Feature gates determine what nodes may do
// beyond the rules that all versions have.
func NewAuthorizer(graph *Graph, enabled func(features.Gate) bool) *Authorizer {
	rules := sharedRules()
	if enabled(features.ClusterTrustBundle) {
		rules = append(rules, newRule("certificates.k8s.io", "clustertrustbundles", "get list watch"))
	}
	return &Authorizer{
		readAllNodesAndPods: !enabled(features.AuthorizeNodeWithSelectors),
		serviceAccounts:     enabled(features.KubeletServiceAccountTokenForCredentialProviders),
		graph:               graph,
		sharedRules:         rbac.NewRuleSet(rules),
	}
}

// groupResource is a resource without its version.
type groupResource struct{ group, resource string }

// Authorize implements authorizer.Authorizer. It either allows a request, or returns no opinion and
// the reason.
func (z *Authorizer) Authorize(_ context.Context, attributes *authorizer.Attributes) (authorizer.Decision, string, error) {
	node, ok := NodeOf(attributes.User)
	if !ok {
		return authorizer.NoOpinion, "", nil
	}
	if node == "" {
		return authorizer.NoOpinion, fmt.Sprintf("unknown node for user %q", attributes.User.Name), nil
	}
	allowed, reason := z.decide(node, attributes)
	if allowed {
		return authorizer.Allow, "", nil
	}
	return authorizer.NoOpinion, reason, nil
}

// decide reports whether a node may send a request. If not, it returns the reason.
func (z *Authorizer) decide(node string, attributes *authorizer.Attributes) (bool, string) {
	if z.readAllNodesAndPods && attributes.Group == "" && (attributes.ResourceName == "nodes" || attributes.ResourceName == "pods") &&
		attributes.Subresource == "" && hasVerb(attributes, "get", "list", "watch") {
		return true, ""
	}
	switch (groupResource{attributes.Group, attributes.ResourceName}) {
	case groupResource{"", "secrets"}:
		return z.canRead(node, Secret, attributes)
	case groupResource{"", "configmaps"}:
		return z.canRead(node, ConfigMap, attributes)
	case groupResource{"", "persistentvolumeclaims"}:
		if attributes.Subresource == "status" {
			if !hasVerb(attributes, "update", "patch") {
				return false, "can only get/update/patch this type"
			}
			return z.hasReference(node, PersistentVolumeClaim, attributes)
		}
		return z.canGet(node, PersistentVolumeClaim, attributes)
	case groupResource{"", "persistentvolumes"}:
		return z.canGet(node, PersistentVolume, attributes)
	case groupResource{"resource.k8s.io", "resourceclaims"}:
		return z.canGet(node, ResourceClaim, attributes)
	case groupResource{"storage.k8s.io", "volumeattachments"}:
		return z.canGet(node, VolumeAttachment, attributes)
	case groupResource{"", "serviceaccounts"}:
		return z.canReadServiceAccount(node, attributes)
	case groupResource{"coordination.k8s.io", "leases"}:
		return canUseLease(node, attributes)
	case groupResource{"storage.k8s.io", "csinodes"}:
		return canUseCSINode(node, attributes)
	case groupResource{"resource.k8s.io", "resourceslices"}:
		return z.canUseSlice(node, attributes)
	case groupResource{"", "nodes"}:
		return canUseNode(node, attributes)
	case groupResource{"", "pods"}:
		return z.canUsePod(node, attributes)
	}
	return z.sharedRules.Allows(attributes), ""
}

// hasVerb reports whether the verb of a request is one of verbs.
func hasVerb(a *authorizer.Attributes, verbs ...string) bool { return slices.Contains(verbs, a.Verb) }

// hasReference reports whether the graph relates the requested object to the node. If not, it
// returns the reason.
func (z *Authorizer) hasReference(node string, kind Kind, a *authorizer.Attributes) (bool, string) {
	if a.Name == "" {
		return false, "No Object name found"
	}
	if !z.graph.HasReference(node, kind, a.Namespace, a.Name) {
		return false, fmt.Sprintf("no relationship found between node '%s' and this object", node)
	}
	return true, ""
}

// canGet allows a node to get an object that belongs to it.
func (z *Authorizer) canGet(node string, kind Kind, attributes *authorizer.Attributes) (bool, string) {
	switch {
	case attributes.Verb != "get":
		return false, "can only get individual resources of this type"
	case attributes.Subresource != "":
		return false, "cannot get subresource"
	}
	return z.hasReference(node, kind, attributes)
}

// canRead authorizes reads of a single object, including lists and watches, which kubelets also
// use.
func (z *Authorizer) canRead(node string, kind Kind, attributes *authorizer.Attributes) (bool, string) {
	switch {
	case !hasVerb(attributes, "get", "list", "watch"):
		return false, "can only read resources of this type"
	case attributes.Subresource != "":
		return false, "cannot read subresource"
	case attributes.Namespace == "":
		return false, "can only read namespaced object of this type"
	}
	return z.hasReference(node, kind, attributes)
}

// canReadServiceAccount decides a request for service accounts.
func (z *Authorizer) canReadServiceAccount(node string, attributes *authorizer.Attributes) (bool, string) {
	if attributes.Verb != "get" || attributes.Subresource != "" {
		return z.canCreateToken(node, attributes)
	}
	if !z.serviceAccounts {
		return false, "not allowed to get service accounts"
	}
	return z.canRead(node, ServiceAccount, attributes)
}

// canCreateToken allows a node to create tokens of the service accounts of its pods.
func (z *Authorizer) canCreateToken(node string, attributes *authorizer.Attributes) (bool, string) {
	switch {
	case attributes.Verb != "create" || attributes.Name == "":
		return false, "can only create tokens for individual service accounts"
	case attributes.Subresource != "token":
		return false, "can only create token subresource of serviceaccount"
	}
	return z.hasReference(node, ServiceAccount, attributes)
}

// canUseLease authorizes requests for the lease of the node. It does not check the name on create,
// because it is not known yet. Admission (NodeRestriction) checks it. The same applies to
// canUseCSINode.
func canUseLease(node string, attributes *authorizer.Attributes) (bool, string) {
	switch {
	case !hasVerb(attributes, "get", "create", "update", "patch", "delete"):
		return false, "can only get, create, update, patch, or delete a node lease"
	case attributes.Namespace != api.NodeLeaseNamespace:
		return false, fmt.Sprintf("can only access leases in the %q system namespace", api.NodeLeaseNamespace)
	case attributes.Verb != "create" && attributes.Name != node:
		return false, "can only access node lease with the same name as the requesting node"
	}
	return true, ""
}

// canUseCSINode authorizes requests for the CSINode of the node.
func canUseCSINode(node string, attributes *authorizer.Attributes) (bool, string) {
	switch {
	case !hasVerb(attributes, "get", "create", "update", "patch", "delete"):
		return false, "can only get, create, update, patch, or delete a CSINode"
	case attributes.Subresource != "":
		return false, "cannot authorize CSINode subresources"
	case attributes.Verb != "create" && attributes.Name != node:
		return false, "can only access CSINode with the same name as the requesting node"
	}
	return true, ""
}

// canUseNode decides a request for nodes. It does not use the graph, so that a kubelet can check
// whether its node exists.
func canUseNode(node string, attributes *authorizer.Attributes) (bool, string) {
	switch attributes.Subresource {
	case "":
		switch {
		case hasVerb(attributes, "create", "update", "patch"):
			return true, "" // admission checks the node's name
		case !hasVerb(attributes, "get", "list", "watch"):
			return false, ""
		case attributes.Name == node:
			return true, ""
		case attributes.Name == "":
			return false, fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
		}
		return false, fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, attributes.Name)
	case "status":
		return hasVerb(attributes, "update", "patch"), ""
	}
	return false, ""
}

// canUsePod decides a request for pods.
func (z *Authorizer) canUsePod(node string, attributes *authorizer.Attributes) (bool, string) {
	switch attributes.Subresource {
	case "":
		switch attributes.Verb {
		case "get":
			return z.hasReference(node, Pod, attributes)
		case "list", "watch":
			if selectsOnly(attributes, "spec.nodeName", node) {
				return true, ""
			}
			if attributes.Name != "" {
				return z.hasReference(node, Pod, attributes)
			}
			return false, "can only list/watch pods with spec.nodeName field selector"
		case "create", "delete":
			return true, "" // admission allows only mirror pods of the node itself
		}
	case "status":
		return hasVerb(attributes, "update", "patch"), ""
	case "eviction":
		return attributes.Verb == "create", ""
	}
	return false, ""
}

// canUseSlice decides a request for resource slices.
func (z *Authorizer) canUseSlice(node string, attributes *authorizer.Attributes) (bool, string) {
	if attributes.Subresource != "" {
		return false, "cannot authorize ResourceSlice subresources"
	}
	switch attributes.Verb {
	case "create":
		return true, "" // admission checks the node of the slice
	case "get", "update", "patch", "delete":
		return z.hasReference(node, ResourceSlice, attributes)
	case "watch", "list", "deletecollection":
		if z.readAllNodesAndPods || selectsOnly(attributes, "spec.nodeName", node) {
			return true, "" // admission checks each slice that a deletecollection deletes
		}
		return false, "can only list/watch/deletecollection resourceslices with nodeName field selector"
	}
	return false, "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"
}

// selectsOnly reports whether the field selector of a request requires the field to have the value.
func selectsOnly(a *authorizer.Attributes, field, value string) bool {
	for _, r := range a.FieldSelector {
		if r.Field == field && r.Operator == selection.Equals && r.Value == value {
			return true
		}
	}
	return false
}

var errRulesNotListable = errors.New("node authorizer does not support user rule resolution")

// RulesFor implements authorizer.RuleResolver. The permissions of a node depend on its pods and
// cannot be listed.
func (*Authorizer) RulesFor(_ context.Context, u *authorizer.User, _ string) (authorizer.Rules, error) {
	if _, ok := NodeOf(u); ok {
		return authorizer.Rules{Incomplete: true}, errRulesNotListable
	}
	return authorizer.Rules{}, nil
}

// sharedRules returns the permissions that all nodes share. decide covers the permissions that
// depend on the node.
func sharedRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		newRule("authentication.k8s.io", "tokenreviews", "create"),
		newRule("authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews", "create"),
		newRule("", "services", "get list watch"),
		newRule("", "events", "create patch update"),
		newRule("", "endpoints", "get"),
		newRule("certificates.k8s.io", "certificatesigningrequests", "create get list watch"),
		newRule("storage.k8s.io", "csidrivers", "get list watch"),
		newRule("node.k8s.io", "runtimeclasses", "get list watch"),
	}
}

func newRule(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
}

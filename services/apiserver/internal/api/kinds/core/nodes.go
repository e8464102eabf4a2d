package core

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Labels that give a node a role: the first one in the suffix of its key, the second one in its
// value.
const (
	nodeRolePrefix = "node-role.kubernetes.io/"
	nodeRoleLabel  = "kubernetes.io/role"
)

// nodes declares the cluster-scoped kind Node.
func nodes() *registry.Kind {
	return declare.Kind[corev1.Node, corev1.NodeList](&registry.Kind{
		Names:          registry.Names{Version: version, Resource: "nodes", Kind: "Node", ShortNames: []string{"no"}},
		Parts:          declare.SpecStatusAccessors(func(n *corev1.Node) (*corev1.NodeSpec, *corev1.NodeStatus) { return &n.Spec, &n.Status }),
		Stored:         registry.StorageForm{Prefix: "minions"},
		Default:        declare.Adapt(defaultNode),
		DefaultedRules: nodeDefaultedRules,
		Create: registry.Create{
			KeepStatus: true,
			// Dynamic kubelet configuration was removed. Only stored nodes may have it.
			Prepare: declare.Adapt(func(n *corev1.Node) {
				n.Spec.ConfigSource = nil
				n.Status.Config = nil
			}),
			Validate: declare.AdaptValidation(validateNode),
			Warnings: declare.AdaptResult(nodeWarnings),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			Prepare: declare.AdaptUpdate(func(n, old *corev1.Node) {
				if old.Spec.ConfigSource == nil {
					n.Spec.ConfigSource = nil
				}
			}),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, n, old *corev1.Node) {
				validateNode(fld, n)
				validateNodeChanges(fld, n, old)
			}),
		},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{{Label: "spec.unschedulable"}},
			Columns:    nodeColumns(),
		},
		Subresources: []registry.Subresource{
			{
				Name:          "proxy",
				Connect:       true,
				AllowSubpaths: true,
				Verbs:         proxyVerbs(),
				GVK:           coreKind("NodeProxyOptions"),
				New:           declare.New[corev1.NodeProxyOptions],
			},
			declare.ValidatedView("status", "Node", func(n, old *corev1.Node) {
				n.Spec = old.Spec
				if old.Status.Config == nil {
					n.Status.Config = nil
				}
			}, validateNodeChanges),
		},
	})
}

// defaultNode sets missing allocatable resources to the capacity, and makes podCIDR equal to the
// first of podCIDRs. If they differ, podCIDR takes precedence, because its writer does not know the
// list.
func defaultNode(node *corev1.Node) {
	poddefaults.Round(node.Status.Capacity)
	poddefaults.Round(node.Status.Allocatable)
	if node.Status.Allocatable == nil {
		node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	}
	switch spec := &node.Spec; {
	case spec.PodCIDR == "" && len(spec.PodCIDRs) > 0:
		spec.PodCIDR = spec.PodCIDRs[0]
	case spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR):
		spec.PodCIDRs = []string{spec.PodCIDR}
	}
}

// nodeWarnings returns the warnings of Kubernetes 1.33.
func nodeWarnings(node *corev1.Node) (out []string) {
	if node.Spec.ConfigSource != nil {
		out = append(out, "spec.configSource: the feature is removed")
	}
	if node.Spec.DoNotUseExternalID != "" {
		out = append(out, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, r := range node.Spec.PodCIDRs {
		out = append(out, validate.CIDRWarnings(field.NewPath("spec", "podCIDRs").Index(i), r)...)
	}
	return out
}

func nodeColumns() []registry.Column {
	info := func(name string) string { return columns.Doc(corev1.NodeSystemInfo{}, name) }
	addresses := columns.Doc(corev1.NodeStatus{}, "addresses")
	return []registry.Column{
		columns.Name(),
		columns.Text("Status", "The status of the node", nodeStatusText),
		columns.Text("Roles", "The roles of the node", nodeRolesText),
		columns.Age(),
		columns.Text("Version", info("kubeletVersion"), func(n *corev1.Node) string { return n.Status.NodeInfo.KubeletVersion }),
		columns.WideText("Internal-IP", addresses, func(n *corev1.Node) string { return nodeAddress(n, corev1.NodeInternalIP) }),
		columns.WideText("External-IP", addresses, func(n *corev1.Node) string { return nodeAddress(n, corev1.NodeExternalIP) }),
		columns.WideText("OS-Image", info("osImage"), func(n *corev1.Node) string {
			return cmp.Or(n.Status.NodeInfo.OSImage, columns.Unknown)
		}),
		columns.WideText("Kernel-Version", info("kernelVersion"), func(n *corev1.Node) string {
			return cmp.Or(n.Status.NodeInfo.KernelVersion, columns.Unknown)
		}),
		columns.WideText("Container-Runtime", info("containerRuntimeVersion"), func(n *corev1.Node) string {
			return cmp.Or(n.Status.NodeInfo.ContainerRuntimeVersion, columns.Unknown)
		}),
	}
}

// nodeStatusText returns whether the node is ready and schedulable.
func nodeStatusText(node *corev1.Node) string {
	text := "Unknown"
	for i := range node.Status.Conditions {
		switch c := &node.Status.Conditions[i]; {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			text = "Ready"
		default:
			text = "NotReady"
		}
	}
	if node.Spec.Unschedulable {
		text += ",SchedulingDisabled"
	}
	return text
}

// nodeRolesText returns the roles in the labels of the node, sorted.
func nodeRolesText(n *corev1.Node) string {
	roles := map[string]bool{}
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, nodeRolePrefix); ok && role != "" {
			roles[role] = true
		} else if key == nodeRoleLabel && value != "" {
			roles[value] = true
		}
	}
	return columns.OrNone(strings.Join(slices.Sorted(maps.Keys(roles)), ","))
}

// nodeAddress returns the first address of a type.
func nodeAddress(n *corev1.Node, typ corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == typ {
			return a.Address
		}
	}
	return columns.None
}

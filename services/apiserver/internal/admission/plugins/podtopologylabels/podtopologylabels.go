// Package podtopologylabels copies the topology labels of a node to the pods that are bound to it.
// The gate PodTopologyLabelsAdmission enables it.
package podtopologylabels

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "PodTopologyLabels"

// copiedLabels returns the labels to copy. As in Kubernetes 1.33, their domain is topology.k8s.io,
// although the labels that cloud providers set on nodes have the domain topology.kubernetes.io.
func copiedLabels() []string { return []string{"topology.k8s.io/zone", "topology.k8s.io/region"} }

// Nodes looks up nodes.
type Nodes interface {
	Node(ctx context.Context, name string) (*corev1.Node, error)
}

// Plugin implements admission.Mutator.
type Plugin struct {
	Nodes Nodes
	// Enabled is the feature gate PodTopologyLabelsAdmission.
	Enabled bool
}

// Admit labels a binding, whose labels are copied to its pod, and a pod that is created on a node.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	if !p.Enabled || req.Operation != admission.Create || !req.IsResource("", "pods") {
		return nil
	}
	switch o := req.Object.(type) {
	case *corev1.Binding:
		if req.Subresource == "binding" && o.Target.Kind == "Node" {
			return p.copyLabels(ctx, &o.ObjectMeta, o.Target.Name)
		}
	case *corev1.Pod:
		if req.Subresource == "" && o.Spec.NodeName != "" {
			return p.copyLabels(ctx, &o.ObjectMeta, o.Spec.NodeName)
		}
	}
	return nil
}

// copyLabels copies the labels of a node to meta. It keeps labels that meta already has. If the node does
// not exist, copyLabels changes nothing.
func (p *Plugin) copyLabels(ctx context.Context, meta *metav1.ObjectMeta, nodeName string) error {
	node, err := p.Nodes.Node(ctx, nodeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, label := range copiedLabels() {
		value, ok := node.Labels[label]
		if _, has := meta.Labels[label]; ok && !has {
			metav1.SetMetaDataLabel(meta, label, value)
		}
	}
	return nil
}

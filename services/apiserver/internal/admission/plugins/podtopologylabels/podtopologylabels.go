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

// labels returns the labels to copy. In Kubernetes 1.33 their domain differs from that of the
// labels of nodes.
func labels() []string { return []string{"topology.k8s.io/zone", "topology.k8s.io/region"} }

// Nodes looks up nodes.
type Nodes interface {
	Node(ctx context.Context, name string) (*corev1.Node, error)
}

// Plugin implements admission.Mutator.
type Plugin struct {
	Nodes Nodes
	// Enabled is the feature gate.
	Enabled bool
}

// Admit labels a binding, whose labels are copied to its pod, and a pod that is created on a node.
func (p *Plugin) Admit(ctx context.Context, r *admission.Request) error {
	if !p.Enabled || r.Operation != admission.Create || !r.IsResource("", "pods") {
		return nil
	}
	switch o := r.Object.(type) {
	case *corev1.Binding:
		if r.Subresource == "binding" && o.Target.Kind == "Node" {
			return p.label(ctx, &o.ObjectMeta, o.Target.Name)
		}
	case *corev1.Pod:
		if r.Subresource == "" && o.Spec.NodeName != "" {
			return p.label(ctx, &o.ObjectMeta, o.Spec.NodeName)
		}
	}
	return nil
}

// label adds the labels of a node. It keeps existing labels. A missing node has no labels.
func (p *Plugin) label(ctx context.Context, m *metav1.ObjectMeta, name string) error {
	node, err := p.Nodes.Node(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, label := range labels() {
		value, ok := node.Labels[label]
		if _, has := m.Labels[label]; ok && !has {
			metav1.SetMetaDataLabel(m, label, value)
		}
	}
	return nil
}

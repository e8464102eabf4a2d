// Package nodetaint keeps workloads off new nodes. Each new node gets the taint not-ready, which
// the node controller removes once the node is ready.
package nodetaint

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "TaintNodesByCondition"

// Plugin implements admission.Mutator.
type Plugin struct{}

// Admit adds the taint to a new node that lacks it.
func (Plugin) Admit(_ context.Context, r *admission.Request) error {
	node, ok := r.Object.(*corev1.Node)
	if !ok || r.Operation != admission.Create || r.Subresource != "" {
		return nil
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
		node.Spec.Taints = append(node.Spec.Taints, notReady)
	}
	return nil
}

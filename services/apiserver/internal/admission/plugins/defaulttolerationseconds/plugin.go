// Package defaulttolerationseconds lets pods stay for some minutes on a node that is not ready or
// unreachable, unless they set the time themselves.
package defaulttolerationseconds

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "DefaultTolerationSeconds"

// DefaultSeconds is how long pods tolerate either taint, in seconds.
const DefaultSeconds int64 = 300

// Plugin implements admission.Mutator.
type Plugin struct {
	// NotReady and Unreachable are how long pods tolerate the taints, in seconds.
	NotReady, Unreachable int64
}

// Admit adds the tolerations that a pod lacks.
func (p Plugin) Admit(_ context.Context, r *admission.Request) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !r.IsObject("", "pods") || r.Operation != admission.Create && r.Operation != admission.Update {
		return nil
	}
	p.tolerate(pod, corev1.TaintNodeNotReady, p.NotReady)
	p.tolerate(pod, corev1.TaintNodeUnreachable, p.Unreachable)
	return nil
}

// tolerate adds a toleration of a taint unless the pod has one.
func (p Plugin) tolerate(pod *corev1.Pod, taint string, seconds int64) {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
	})
}

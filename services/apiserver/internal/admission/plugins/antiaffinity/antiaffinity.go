// Package antiaffinity rejects pods whose required anti-affinity uses a topology larger than a
// node.
package antiaffinity

import (
	"context"

	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "LimitPodHardAntiAffinityTopology"

// Plugin implements admission.Validator.
type Plugin struct{}

// Validate rejects required anti-affinity with a topology key other than the host name.
func (Plugin) Validate(_ context.Context, req *admission.Request) error {
	pod, ok := req.Object.(*corev1.Pod)
	if !ok || !req.IsObject("", "pods") || req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return apierrors.NewForbidden(
				req.Resource.GroupResource(),
				pod.Name,
				fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed",
					term.TopologyKey, corev1.LabelHostname),
			)
		}
	}
	return nil
}

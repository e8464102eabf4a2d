package antiaffinity_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/antiaffinity"
	"binnacle/services/apiserver/internal/registry"
)

// TestRequiredAntiAffinityAllowsOnlyHostName checks that a pod is rejected if its required
// anti-affinity uses another topology key than the host name.
func TestRequiredAntiAffinityAllowsOnlyHostName(t *testing.T) {
	antiAffinity := func(keys ...string) *corev1.Affinity {
		podAntiAffinity := &corev1.PodAntiAffinity{}
		for _, k := range keys {
			podAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(podAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
				corev1.PodAffinityTerm{TopologyKey: k})
		}
		return &corev1.Affinity{PodAntiAffinity: podAntiAffinity}
	}
	for name, test := range map[string]struct {
		op          admission.Operation
		subresource string
		affinity    *corev1.Affinity
		want        string // error
	}{
		"no affinity":      {op: admission.Create},
		"no anti-affinity": {op: admission.Create, affinity: &corev1.Affinity{}},
		"host name":        {op: admission.Create, affinity: antiAffinity("kubernetes.io/hostname")},
		"preferred zone": {
			op: admission.Create,
			affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
					{PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}},
				},
			}},
		},
		"required zone": {
			op: admission.Create, affinity: antiAffinity("zone"),
			want: `pods "a" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed`,
		},
		"required host name and zone": {
			op: admission.Update, affinity: antiAffinity("kubernetes.io/hostname", "z"),
			want: `pods "a" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey z but only key kubernetes.io/hostname is allowed`,
		},
		"required zone, subresource": {op: admission.Update, subresource: "status", affinity: antiAffinity("zone")},
		"required zone, delete":      {op: admission.Delete, affinity: antiAffinity("zone")},
	} {
		pod := &corev1.Pod{}
		pod.Name, pod.Spec.Affinity = "a", test.affinity
		err := antiaffinity.Plugin{}.Validate(t.Context(), &admission.Request{
			Operation: test.op, Subresource: test.subresource, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Object: pod,
		})
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%s: got error %v, want %q (empty: none)", name, err, test.want)
		}
	}
}

package antiaffinity_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/antiaffinity"
	"binnacle/services/apiserver/internal/registry"
)

// TestTopologyKeys rejects pods whose required anti-affinity uses another topology key than the
// host name.
func TestTopologyKeys(t *testing.T) {
	antiAffinity := func(keys ...string) *corev1.Affinity {
		a := &corev1.PodAntiAffinity{}
		for _, k := range keys {
			a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution,
				corev1.PodAffinityTerm{TopologyKey: k})
		}
		return &corev1.Affinity{PodAntiAffinity: a}
	}
	for name, c := range map[string]struct {
		op       admission.Operation
		sub      string
		affinity *corev1.Affinity
		want     string
	}{
		"none":             {op: admission.Create},
		"no anti-affinity": {op: admission.Create, affinity: &corev1.Affinity{}},
		"host name":        {op: admission.Create, affinity: antiAffinity("kubernetes.io/hostname")},
		"preferred": {
			op:       admission.Create,
			affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}}}}},
		},
		"zone": {
			op: admission.Create, affinity: antiAffinity("zone"),
			want: `pods "a" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed`,
		},
		"zone, second": {
			op: admission.Update, affinity: antiAffinity("kubernetes.io/hostname", "z"),
			want: `pods "a" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey z but only key kubernetes.io/hostname is allowed`,
		},
		"zone, sub-resource": {op: admission.Update, sub: "status", affinity: antiAffinity("zone")},
		"zone, deleted":      {op: admission.Delete, affinity: antiAffinity("zone")},
	} {
		p := &corev1.Pod{}
		p.Name, p.Spec.Affinity = "a", c.affinity
		err := antiaffinity.Plugin{}.Validate(t.Context(), &admission.Request{
			Operation: c.op, Subresource: c.sub, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Object: p,
		})
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

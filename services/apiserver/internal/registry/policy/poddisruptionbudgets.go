package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

func podDisruptionBudgets() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "poddisruptionbudgets", Singular: "poddisruptionbudget", Kind: "PodDisruptionBudget",
		ShortNames: []string{"pdb"}, Namespaced: true,
		New:                declare.New[policyv1.PodDisruptionBudget],
		NewList:            declare.New[policyv1.PodDisruptionBudgetList],
		Stored:             registry.Stored{Prefix: "poddisruptionbudgets"},
		ValidateName:       meta.PathSegment,
		AnyFinalizer:       true,
		Generation:         true,
		UpdateNeedsVersion: true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("Min Available", "The minimum number of pods that must be available.", func(b *policyv1.PodDisruptionBudget) string {
				return bound(b.Spec.MinAvailable)
			}),
			columns.Text("Max Unavailable", "The maximum number of pods that may be unavailable.", func(b *policyv1.PodDisruptionBudget) string {
				return bound(b.Spec.MaxUnavailable)
			}),
			columns.Int("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time.", func(b *policyv1.PodDisruptionBudget) int64 {
				return int64(b.Status.DisruptionsAllowed)
			}),
			columns.Age(),
		},
		Subresources: []registry.Subresource{declare.Status("PodDisruptionBudget")},
	}
}

func bound(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}

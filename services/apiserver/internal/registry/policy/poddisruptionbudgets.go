package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/registry/validate"
)

func podDisruptionBudgets() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "poddisruptionbudgets", Singular: "poddisruptionbudget", Kind: "PodDisruptionBudget",
			ShortNames: []string{"pdb"}, Namespaced: true,
			ValidateName: meta.PathSegment,
			AnyFinalizer: true,
		},
		New:     declare.New[policyv1.PodDisruptionBudget],
		NewList: declare.New[policyv1.PodDisruptionBudgetList],
		Parts: declare.Parts(func(p *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudgetSpec, *policyv1.PodDisruptionBudgetStatus) {
			return &p.Spec, &p.Status
		}),
		Stored: registry.Stored{Prefix: "poddisruptionbudgets"},
		Create: registry.Create{Validate: declare.Rules(func(at validate.At, b *policyv1.PodDisruptionBudget) { budgetRules(at, b, nil) })},
		Update: registry.Update{Generation: true, NeedsVersion: true, Validate: declare.Changes(budgetRules)},
		Shown: registry.Shown{Columns: []registry.Column{
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
		}},
		Subresources: []registry.Subresource{declare.CheckedStatus("PodDisruptionBudget", budgetStatusRules)},
	}
}

func budgetRules(at validate.At, b, old *policyv1.PodDisruptionBudget) {
	s, spec := &b.Spec, at.Child("spec")
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		at.Invalid("spec", validate.Shown{Value: *s, Package: group}, "minAvailable and maxUnavailable cannot be both set")
	}
	amount := func(name string, n *intstr.IntOrString) {
		if n != nil {
			spec.CountOrPercent(name, *n)
			spec.AtMostWhole(name, *n)
		}
	}
	amount("minAvailable", s.MinAvailable)
	amount("maxUnavailable", s.MaxUnavailable)
	spec.Selector("selector", s.Selector, old != nil && validate.HasInvalidValue(old.Spec.Selector))
	validate.OptionalOneOf(spec, "unhealthyPodEvictionPolicy", s.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)
}

func budgetStatusRules(at validate.At, b, _ *policyv1.PodDisruptionBudget) {
	s, status := &b.Status, at.Child("status")
	status.Conditions("conditions", s.Conditions)
	status.NonNegative("disruptionsAllowed", int64(s.DisruptionsAllowed))
	status.NonNegative("currentHealthy", int64(s.CurrentHealthy))
	status.NonNegative("desiredHealthy", int64(s.DesiredHealthy))
	status.NonNegative("expectedPods", int64(s.ExpectedPods))
}

func bound(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}

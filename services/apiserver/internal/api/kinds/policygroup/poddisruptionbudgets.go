package policygroup

import (
	"bytes"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/registry/validate"
)

// podDisruptionBudgets declares the namespaced kind PodDisruptionBudget.
func podDisruptionBudgets() *registry.Kind {
	return declare.Kind[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget",
			ShortNames: []string{"pdb"}, Namespaced: true, ValidateName: meta.PathSegment,
			AllowUnqualifiedFinalizers: true,
		},
		Parts: declare.SpecStatusAccessors(func(p *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudgetSpec, *policyv1.PodDisruptionBudgetStatus) {
			return &p.Spec, &p.Status
		}),
		Default:        declare.Adapt(removeBeta1Label),
		DefaultedRules: budgetDefaultedRules,
		Create: registry.Create{
			Validate: declare.AdaptValidation(
				func(fld validate.Field, b *policyv1.PodDisruptionBudget) { validateBudget(fld, b, nil) },
			),
			RulesFirst: true,
		},
		Update: registry.Update{
			Order:                  registry.Order{registry.UpdateRules},
			Generation:             true,
			RequireResourceVersion: true,
			Validate:               declare.AdaptUpdateValidation(validateBudget),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text(
				"Min Available",
				"The minimum number of pods that must be available.",
				func(b *policyv1.PodDisruptionBudget) string {
					return boundText(b.Spec.MinAvailable)
				},
			),
			columns.Text(
				"Max Unavailable",
				"The maximum number of pods that may be unavailable.",
				func(b *policyv1.PodDisruptionBudget) string {
					return boundText(b.Spec.MaxUnavailable)
				},
			),
			columns.Int(
				"Allowed Disruptions",
				"Calculated number of pods that may be disrupted at this time.",
				func(b *policyv1.PodDisruptionBudget) int64 {
					return int64(b.Status.DisruptionsAllowed)
				},
			),
			columns.Age(),
		}},
		Subresources: []registry.Subresource{declare.WithValidationOrder(declare.ValidatedStatus("PodDisruptionBudget", validateBudgetStatus), registry.UpdateRules)},
	})
}

// beta1Label is a label that no pod has. In policy/v1beta1, where an empty selector selects no
// pods, an expression with this label represents the meaning that the empty selector has in the
// other version.
const beta1Label = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// FromV1beta1 converts the selector of a budget of policy/v1beta1, which has the fields of v1.
func FromV1beta1(budget *policyv1.PodDisruptionBudget) {
	if s := budget.Spec.Selector; s != nil && len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: beta1Label, Operator: metav1.LabelSelectorOpExists}}
		return
	}
	removeBeta1Label(budget)
}

// removeBeta1Label removes expressions on beta1Label, unless the selector is the one that selects
// no pods.
func removeBeta1Label(b *policyv1.PodDisruptionBudget) {
	selector := b.Spec.Selector
	if selector == nil || selectsNoPods(selector) {
		return
	}
	selector.MatchExpressions = slices.DeleteFunc(
		selector.MatchExpressions,
		func(e metav1.LabelSelectorRequirement) bool { return e.Key == beta1Label },
	)
}

// selectsNoPods reports whether a selector is the one that FromV1beta1 makes of an empty selector.
func selectsNoPods(selector *metav1.LabelSelector) bool {
	if len(selector.MatchLabels) > 0 || len(selector.MatchExpressions) != 1 {
		return false
	}
	e := &selector.MatchExpressions[0]
	return e.Key == beta1Label && e.Operator == metav1.LabelSelectorOpExists && len(e.Values) == 0
}

// budgetDefaultedRules returns the rule for selectors that removeBeta1Label does not change.
func budgetDefaultedRules() []transcode.Rule {
	return []transcode.Rule{transcode.FieldsPass[metav1.LabelSelector](func(fields [4][]byte) bool {
		return !bytes.Contains(fields[0], []byte(beta1Label))
	}, "matchExpressions")}
}

func validateBudget(fld validate.Field, b, old *policyv1.PodDisruptionBudget) {
	s, spec := &b.Spec, fld.Child("spec")
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		fld.Invalid("spec", *s, "minAvailable and maxUnavailable cannot be both set")
	}
	checkAmount := func(name string, n *intstr.IntOrString) {
		if n != nil {
			spec.CheckNonNegativeIntOrPercent(name, *n)
			spec.CheckAtMost100Percent(name, *n)
		}
	}
	checkAmount("minAvailable", s.MinAvailable)
	checkAmount("maxUnavailable", s.MaxUnavailable)
	spec.CheckSelector("selector", s.Selector, old != nil && validate.HasInvalidLabelValue(old.Spec.Selector))
	validate.OptionalOneOf(spec, "unhealthyPodEvictionPolicy", s.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow,
		policyv1.IfHealthyBudget)
}

func validateBudgetStatus(fld validate.Field, b, _ *policyv1.PodDisruptionBudget) {
	s, status := &b.Status, fld.Child("status")
	status.CheckConditions("conditions", s.Conditions)
	status.CheckNonNegative("disruptionsAllowed", int64(s.DisruptionsAllowed))
	status.CheckNonNegative("currentHealthy", int64(s.CurrentHealthy))
	status.CheckNonNegative("desiredHealthy", int64(s.DesiredHealthy))
	status.CheckNonNegative("expectedPods", int64(s.ExpectedPods))
}

// boundText returns the text of a bound, or N/A.
func boundText(value *intstr.IntOrString) string {
	if value == nil {
		return "N/A"
	}
	return value.String()
}

// Package apps declares the kinds of the apps group, v1, with one file for each kind. It has no
// state. Kinds returns new values for the catalog of built-in kinds.
package apps

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/validate"
)

const (
	group   = "apps"
	version = "v1"
)

// Kinds returns the kinds of the group, ordered by resource.
func Kinds(settings registry.Settings) []*registry.Kind {
	rules := podspec.NewRules(settings)
	terminating := terminatingGate(settings.Enabled(features.DeploymentReplicaSetTerminatingReplicas))
	return []*registry.Kind{
		controllerRevisions(),
		daemonSets(rules),
		deployments(rules, terminating),
		replicaSets(rules, terminating),
		statefulSets(rules, settings.Enabled(features.MaxUnavailableStatefulSet)),
	}
}

// terminatingGate reports whether statuses count terminating replicas.
type terminatingGate bool

// drop clears the number of terminating replicas unless the gate is on or the stored object has it.
func (on terminatingGate) drop(s, old **int32) {
	if !on && *old == nil {
		*s = nil
	}
}

func templateColumns[T registry.Object](template func(T) *corev1.PodTemplateSpec) []registry.Column {
	return []registry.Column{
		columns.WideText("Containers", "Names of each container in the template.", func(o T) string {
			return columns.ContainerNames(template(o).Spec.Containers)
		}),
		columns.WideText("Images", "Images referenced by each container in the template.", func(o T) string {
			return columns.ContainerImages(template(o).Spec.Containers)
		}),
	}
}

// validateSelector requires a non-empty selector. kind appears in messages.
func validateSelector(fld validate.Field, selector *metav1.LabelSelector, kind string) {
	if selector == nil {
		fld.Required("selector", "")
		return
	}
	fld.CheckSelector("selector", selector, false)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		fld.Invalid("selector", *selector, "empty selector is invalid for "+kind)
	}
}

// requireMatchingSelector requires that a selector matches the pods of a template. It reports
// whether the selector is valid.
func requireMatchingSelector(fld validate.Field, s *metav1.LabelSelector, template *corev1.PodTemplateSpec, invalid string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		fld.Invalid("selector", *s, invalid)
		return false
	}
	if !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		fld.Child("template", "metadata").Invalid("labels", template.Labels, "`selector` does not match template `labels`")
	}
	return true
}

// validateReplicaTemplate validates the selector and the template of kinds that create replica
// sets.
func validateReplicaTemplate(fld validate.Field, rules *podspec.Rules, s *metav1.LabelSelector, t, old *corev1.PodTemplateSpec) {
	validateSelector(fld, s, "deployment")
	if requireMatchingSelector(fld, s, t, "invalid label selector") {
		rules.ValidateReplicatedTemplate(fld.Child("template"), t, old, "ReplicaSet")
	}
}

// scaledAmount returns a number, or a percentage without the percent sign.
func scaledAmount(value *intstr.IntOrString) int {
	if value == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, 100, true)
	if err != nil {
		return 0
	}
	return n
}

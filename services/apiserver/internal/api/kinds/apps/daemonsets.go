package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// daemonSets declares the namespaced kind DaemonSet.
func daemonSets(rules *podspec.Rules) *registry.Kind {
	pods := podspec.PodsOf[*appsv1.DaemonSet]{
		Template:           func(daemonSet *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &daemonSet.Spec.Template },
		Path:               field.NewPath("spec", "template"),
		WarnOfTemplateOnly: true,
	}
	return podspec.WithPodTemplate(rules, pods, declare.Kind[appsv1.DaemonSet, appsv1.DaemonSetList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "daemonsets", Kind: "DaemonSet",
			ShortNames: []string{"ds"}, Categories: []string{"all"}, Namespaced: true,
		},
		Parts: declare.SpecStatusAccessors(func(daemonSet *appsv1.DaemonSet) (*appsv1.DaemonSetSpec, *appsv1.DaemonSetStatus) {
			return &daemonSet.Spec, &daemonSet.Status
		}),
		Default: declare.Adapt(defaultDaemonSet),
		Convertible: declare.AdaptResult(func(daemonSet *appsv1.DaemonSet) error {
			text, ok := daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration]
			if !ok {
				return nil
			}
			_, err := strconv.ParseInt(text, 10, 64)
			return err
		}),
		Create: registry.Create{
			Prepare: declare.Adapt(func(daemonSet *appsv1.DaemonSet) {
				setTemplateGeneration(daemonSet, max(templateGeneration(daemonSet), 1))
			}),
			Validate: declare.AdaptValidation(func(fld validate.Field, daemonSet *appsv1.DaemonSet) {
				validateDaemonSet(fld.Child("spec"), rules, &daemonSet.Spec, nil)
			}),
		},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			Generation: true,
			Prepare: declare.AdaptUpdate(func(daemonSet, old *appsv1.DaemonSet) {
				generation := templateGeneration(old)
				if !validate.SemanticEqual(daemonSet.Spec.Template, old.Spec.Template) {
					generation++
				}
				setTemplateGeneration(daemonSet, generation)
			}),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, daemonSet, old *appsv1.DaemonSet) {
				fld.RecordTwice(func() { validateDaemonSet(fld.Child("spec"), rules, &daemonSet.Spec, &old.Spec.Template) })
				fld.Child("spec").CheckImmutable("selector", daemonSet.Spec.Selector, old.Spec.Selector)
			}),
		},
		Presentation: registry.Presentation{Columns: daemonSetColumns()},
		Subresources: []registry.Subresource{daemonSetStatus()},
	}))
}

// defaultDaemonSet sets the fields that a client omitted, and the annotation templateGeneration.
func defaultDaemonSet(daemonSet *appsv1.DaemonSet) {
	spec := &daemonSet.Spec
	declare.SetDefault(&spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		declare.SetDefaultPtr(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		declare.SetDefaultPtr(&spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		declare.SetDefaultPtr(&spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil {
		declare.SetDefaultPtr(&rolling.MaxUnavailable, intstr.FromInt32(0))
		declare.SetDefaultPtr(&rolling.MaxSurge, intstr.FromInt32(0))
	}
	declare.SetDefaultPtr(&spec.RevisionHistoryLimit, historyLimit)
	poddefaults.Template(&spec.Template)
	setTemplateGeneration(daemonSet, templateGeneration(daemonSet))
}

// templateGeneration returns how often the template has changed. The field no longer exists; an
// annotation holds its value.
func templateGeneration(daemonSet *appsv1.DaemonSet) int64 {
	generation, err := strconv.ParseInt(daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// setTemplateGeneration sets the annotation that templateGeneration reads.
func setTemplateGeneration(daemonSet *appsv1.DaemonSet, generation int64) {
	if daemonSet.Annotations == nil {
		daemonSet.Annotations = map[string]string{}
	}
	daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(generation, 10)
}

// validateDaemonSet validates the spec of a new or changed set. old is the stored pod template, nil at
// creation.
func validateDaemonSet(fld validate.Field, rules *podspec.Rules, spec *appsv1.DaemonSetSpec, old *corev1.PodTemplateSpec) {
	fld.CheckSelector("selector", spec.Selector, false)
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		fld.Child("template", "metadata").Invalid("labels", spec.Template.Labels, "`selector` does not match template `labels`")
	}
	if spec.Selector != nil && len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
		fld.Invalid("selector", *spec.Selector, "empty selector is invalid for daemonset")
	}
	rules.ValidateReplicatedTemplate(fld.Child("template"), &spec.Template, old, "DaemonSet")
	fld.CheckNonNegative("minReadySeconds", int64(spec.MinReadySeconds))
	switch strategy := &spec.UpdateStrategy; strategy.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		path := fld.Child("updateStrategy")
		path.RequireSet("rollingUpdate", strategy.RollingUpdate != nil)
		validate.Optional(path, "rollingUpdate", strategy.RollingUpdate, validateDaemonSetRollingUpdate)
	default:
		fld.Add(field.NotSupported(fld.Child("updateStrategy").FieldPath(), validate.InternalValue(*strategy),
			[]appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType}))
	}
	validate.OptionalNonNegative(fld, "revisionHistoryLimit", spec.RevisionHistoryLimit)
}

// validateDaemonSetRollingUpdate requires exactly one of maxUnavailable and maxSurge to be
// non-zero.
func validateDaemonSetRollingUpdate(fld validate.Field, rolling *appsv1.RollingUpdateDaemonSet) {
	unavailable := declare.Deref(rolling.MaxUnavailable)
	surge := declare.Deref(rolling.MaxSurge)
	fld.CheckNonNegativeIntOrPercent("maxUnavailable", unavailable)
	fld.CheckNonNegativeIntOrPercent("maxSurge", surge)
	fld.CheckAtMost100Percent("maxUnavailable", unavailable)
	fld.CheckAtMost100Percent("maxSurge", surge)
	switch hasUnavailable, hasSurge := scaledAmount(rolling.MaxUnavailable) != 0, scaledAmount(rolling.MaxSurge) != 0; {
	case hasUnavailable && hasSurge:
		fld.Invalid("maxSurge", surge, "may not be set when maxUnavailable is non-zero")
	case !hasUnavailable && !hasSurge:
		fld.Required("maxUnavailable", "cannot be 0 when maxSurge is 0")
	}
}

// daemonSetStatus returns the status subresource. It keeps the template generation, which belongs
// to the spec although an annotation holds it.
func daemonSetStatus() registry.Subresource {
	subresource := declare.ValidatedStatus("DaemonSet", validateDaemonSetStatus)
	subresource.Prepare = declare.AdaptUpdate(func(d, old *appsv1.DaemonSet) {
		d.Spec = old.Spec
		setTemplateGeneration(d, templateGeneration(old))
	})
	return subresource
}

// validateDaemonSetStatus requires counts that are not negative.
func validateDaemonSetStatus(fld validate.Field, daemonSet, old *appsv1.DaemonSet) {
	s, status := &daemonSet.Status, fld.Child("status")
	status.CheckNonNegative("currentNumberScheduled", int64(s.CurrentNumberScheduled))
	status.CheckNonNegative("numberMisscheduled", int64(s.NumberMisscheduled))
	status.CheckNonNegative("desiredNumberScheduled", int64(s.DesiredNumberScheduled))
	status.CheckNonNegative("numberReady", int64(s.NumberReady))
	status.CheckNonNegative("observedGeneration", s.ObservedGeneration)
	status.CheckNonNegative("updatedNumberScheduled", int64(s.UpdatedNumberScheduled))
	status.CheckNonNegative("numberAvailable", int64(s.NumberAvailable))
	status.CheckNonNegative("numberUnavailable", int64(s.NumberUnavailable))
	validate.OptionalNonNegative(status, "collisionCount", s.CollisionCount)
	status.CheckNotDecremented("collisionCount", s.CollisionCount, old.Status.CollisionCount)
}

// daemonSetColumns uses some descriptions of an older version, as in Kubernetes.
func daemonSetColumns() []registry.Column {
	stat := func(name string) string { return columns.Doc(extensionsv1beta1.DaemonSetStatus{}, name) }
	count := func(name, field string, n func(*appsv1.DaemonSetStatus) int32) registry.Column {
		return columns.Int(name, stat(field), func(d *appsv1.DaemonSet) int64 { return int64(n(&d.Status)) })
	}
	cols := []registry.Column{
		columns.Name(),
		count("Desired", "desiredNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.DesiredNumberScheduled }),
		count("Current", "currentNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.CurrentNumberScheduled }),
		count("Ready", "numberReady", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberReady }),
		count("Up-to-date", "updatedNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.UpdatedNumberScheduled }),
		count("Available", "numberAvailable", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberAvailable }),
		columns.Text("Node Selector", columns.Doc(corev1.PodSpec{}, "nodeSelector"), func(d *appsv1.DaemonSet) string {
			return columns.Labels(d.Spec.Template.Spec.NodeSelector)
		}),
		columns.Age(),
	}
	cols = append(cols, templateColumns(func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template })...)
	return append(
		cols,
		columns.WideText("Selector", columns.Doc(extensionsv1beta1.DaemonSetSpec{}, "selector"), func(d *appsv1.DaemonSet) string {
			return columns.Selector(d.Spec.Selector)
		}),
	)
}

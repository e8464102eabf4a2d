package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/registry/validate"
)

// statefulSets declares the namespaced kind StatefulSet.
func statefulSets(rules *podspec.Rules, maxUnavailable bool) *registry.Kind {
	drop := dropMaxUnavailable
	if maxUnavailable {
		drop = func(_, _ *appsv1.StatefulSet) {}
	}
	pods := podspec.PodsOf[*appsv1.StatefulSet]{
		Template: func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template },
		Path:     field.NewPath("spec", "template"),
	}
	return podspec.WithPodTemplate(rules, pods, declare.Kind[appsv1.StatefulSet, appsv1.StatefulSetList](&registry.Kind{
		Names: registry.Names{
			Group:      group,
			Version:    version,
			Resource:   "statefulsets",
			Kind:       "StatefulSet",
			ShortNames: []string{"sts"},
			Categories: []string{"all"},
			Namespaced: true,
			// The name becomes part of the pods' host names.
			ValidateName: meta.DNSLabel,
		},
		Parts: declare.SpecStatusAccessors(func(s *appsv1.StatefulSet) (*appsv1.StatefulSetSpec, *appsv1.StatefulSetStatus) {
			return &s.Spec, &s.Status
		}),
		Default: declare.Adapt(func(s *appsv1.StatefulSet) { defaultStatefulSet(s, maxUnavailable) }),
		Create: registry.Create{
			Prepare: declare.Adapt(func(s *appsv1.StatefulSet) { drop(s, nil) }),
			Validate: declare.AdaptValidation(func(fld validate.Field, s *appsv1.StatefulSet) {
				validateStatefulSet(fld.Child("spec"), rules, &s.Spec, nil)
			}),
			Warnings: declare.AdaptResult(func(s *appsv1.StatefulSet) []string { return statefulSetWarnings(s) }),
		},
		Update: registry.Update{
			Generation: true,
			Prepare:    declare.AdaptUpdate(drop),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, s, old *appsv1.StatefulSet) {
				validateStatefulSet(fld.Child("spec"), rules, &s.Spec, &old.Spec.Template)
				validateStatefulSetChanges(fld, &s.Spec, &old.Spec)
			}),
			Warnings: declare.AdaptUpdateResult(func(s, _ *appsv1.StatefulSet) []string { return statefulSetWarnings(s, "Spec") }),
		},
		Presentation: registry.Presentation{Columns: statefulSetColumns()},
		Subresources: []registry.Subresource{
			declare.Scale(
				func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
				func(s *appsv1.StatefulSet) (int32, *metav1.LabelSelector) { return s.Status.Replicas, s.Spec.Selector },
			),
			declare.ValidatedStatus("StatefulSet", validateStatefulSetStatus),
		},
	}))
}

// statefulSetWarnings returns the warnings of a set itself. below is the path after the claim:
// Kubernetes has "Spec" there on updates.
func statefulSetWarnings(set *appsv1.StatefulSet, below ...string) (texts []string) {
	spec := &set.Spec
	claims := field.NewPath("spec", "volumeClaimTemplates")
	for i := range spec.VolumeClaimTemplates {
		claim := claims.Index(i)
		for _, name := range below {
			claim = claim.Child(name)
		}
		texts = append(texts, podspec.ClaimWarnings(claim, &spec.VolumeClaimTemplates[i].Spec)...)
	}
	if n := spec.RevisionHistoryLimit; n != nil && *n < 0 {
		texts = append(texts,
			"spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return texts
}

// defaultStatefulSet sets the fields that a client omitted. maxUnavailable is the gate
// MaxUnavailableStatefulSet.
func defaultStatefulSet(set *appsv1.StatefulSet, maxUnavailable bool) {
	spec := &set.Spec
	declare.SetDefaultPtr(&spec.Replicas, 1)
	declare.SetDefault(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		declare.SetDefaultPtr(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	// A strategy that the client sent without rollingUpdate does not get one.
	rolling := spec.UpdateStrategy.RollingUpdate
	if rolling != nil && spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		declare.SetDefaultPtr(&rolling.Partition, 0)
		if maxUnavailable {
			declare.SetDefaultPtr(&rolling.MaxUnavailable, intstr.FromInt32(1))
		}
	}
	declare.SetDefaultPtr(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	declare.SetDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	declare.SetDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	declare.SetDefaultPtr(&spec.RevisionHistoryLimit, historyLimit)
	poddefaults.Template(&spec.Template)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim" // also if the client sent others
		poddefaults.Claim(claim)
	}
}

// validateStatefulSet validates the spec of a new or changed set. old is the stored pod template, nil
// at creation.
func validateStatefulSet(fld validate.Field, rules *podspec.Rules, spec *appsv1.StatefulSetSpec, old *corev1.PodTemplateSpec) {
	either := func(a, b string) string { return "must be '" + a + "' or '" + b + "'" }
	switch spec.PodManagementPolicy {
	case "":
		fld.Required("podManagementPolicy", "")
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		fld.Invalid("podManagementPolicy", spec.PodManagementPolicy,
			either(string(appsv1.OrderedReadyPodManagement), string(appsv1.ParallelPodManagement)))
	}
	rolling := spec.UpdateStrategy.RollingUpdate
	switch spec.UpdateStrategy.Type {
	case "":
		fld.Required("updateStrategy", "")
	case appsv1.OnDeleteStatefulSetStrategyType:
		if rolling != nil {
			fld.Child("updateStrategy").
				Invalid("rollingUpdate", RollingUpdateStatefulSetStrategy{declare.Deref(rolling.Partition), rolling.MaxUnavailable},
					"only allowed for updateStrategy 'RollingUpdate'")
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		validate.Optional(fld.Child("updateStrategy"), "rollingUpdate", rolling, validateStatefulSetRollingUpdate)
	default:
		fld.Invalid("updateStrategy", spec.UpdateStrategy,
			either(string(appsv1.RollingUpdateStatefulSetStrategyType), string(appsv1.OnDeleteStatefulSetStrategyType)))
	}
	validate.Optional(fld, "persistentVolumeClaimRetentionPolicy", spec.PersistentVolumeClaimRetentionPolicy,
		func(fld validate.Field, p *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy) {
			const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
			validate.OneOf(fld, "whenDeleted", p.WhenDeleted, retain, remove)
			validate.OneOf(fld, "whenScaled", p.WhenScaled, retain, remove)
		})
	validate.OptionalNonNegative(fld, "replicas", spec.Replicas)
	fld.CheckNonNegative("minReadySeconds", int64(spec.MinReadySeconds))
	if spec.Ordinals != nil {
		fld.CheckNonNegative("ordinals.start", int64(spec.Ordinals.Start))
	}
	if old == nil {
		fld.CheckOptionalText("serviceName", spec.ServiceName, validate.DNSLabel)
	}
	validateSelector(fld, spec.Selector, "statefulset")
	if requireMatchingSelector(fld, spec.Selector, &spec.Template, "") {
		// Mounts of the template may refer to the set's claim templates.
		rules.ValidateTemplateMeta(fld.Child("template"), &spec.Template, old)
	}
	pods := fld.Child("template", "spec")
	validate.OneOf(pods, "restartPolicy", spec.Template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	pods.ForbidSet("activeDeadlineSeconds", spec.Template.Spec.ActiveDeadlineSeconds != nil,
		"activeDeadlineSeconds in StatefulSet is not Supported")
}

// RollingUpdateStatefulSetStrategy is the form of a strategy in messages.
type RollingUpdateStatefulSetStrategy struct {
	Partition      int32
	MaxUnavailable *intstr.IntOrString
}

// dropMaxUnavailable clears the field of a disabled gate, unless the stored object has it.
func dropMaxUnavailable(set, old *appsv1.StatefulSet) {
	has := func(set *appsv1.StatefulSet) bool {
		return set != nil && set.Spec.UpdateStrategy.RollingUpdate != nil && set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable != nil
	}
	if has(set) && !has(old) {
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = nil
	}
}

// validateStatefulSetRollingUpdate validates the partition and maxUnavailable of a rolling update.
func validateStatefulSetRollingUpdate(fld validate.Field, rolling *appsv1.RollingUpdateStatefulSetStrategy) {
	validate.OptionalNonNegative(fld, "partition", rolling.Partition)
	if rolling.MaxUnavailable == nil {
		return
	}
	fld.CheckNonNegativeIntOrPercent("maxUnavailable", *rolling.MaxUnavailable)
	if scaledAmount(rolling.MaxUnavailable) == 0 {
		fld.Invalid("maxUnavailable", *rolling.MaxUnavailable, "cannot be 0")
	}
	fld.CheckAtMost100Percent("maxUnavailable", *rolling.MaxUnavailable)
}

// validateStatefulSetChanges rejects changes of fields that existing pods and claims depend on.
func validateStatefulSetChanges(fld validate.Field, spec, old *appsv1.StatefulSetSpec) {
	unchangeable := spec.DeepCopy()
	unchangeable.Replicas = old.Replicas
	unchangeable.Template = old.Template
	unchangeable.UpdateStrategy = old.UpdateStrategy
	unchangeable.MinReadySeconds = old.MinReadySeconds
	unchangeable.Ordinals = old.Ordinals
	unchangeable.PersistentVolumeClaimRetentionPolicy = old.PersistentVolumeClaimRetentionPolicy
	unchangeable.RevisionHistoryLimit = old.RevisionHistoryLimit
	fld.ForbidSet(
		"spec",
		!validate.SemanticEqual(unchangeable, old),
		"updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template',"+
			" 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
	)
}

// validateStatefulSetStatus requires counts of replicas that do not contradict each other.
func validateStatefulSetStatus(fld validate.Field, set, old *appsv1.StatefulSet) {
	s, status := &set.Status, fld.Child("status")
	status.CheckNonNegative("replicas", int64(s.Replicas))
	status.CheckNonNegative("readyReplicas", int64(s.ReadyReplicas))
	status.CheckNonNegative("currentReplicas", int64(s.CurrentReplicas))
	status.CheckNonNegative("updatedReplicas", int64(s.UpdatedReplicas))
	status.CheckNonNegative("availableReplicas", int64(s.AvailableReplicas))
	status.CheckNonNegative("observedGeneration", s.ObservedGeneration)
	validate.OptionalNonNegative(status, "collisionCount", s.CollisionCount)
	validate.AtMost(status, "readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "currentReplicas", s.CurrentReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "updatedReplicas", s.UpdatedReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "status.readyReplicas")
	status.CheckNotDecremented("collisionCount", s.CollisionCount, old.Status.CollisionCount)
}

// statefulSetColumns returns the columns of tables of sets.
func statefulSetColumns() []registry.Column {
	return append([]registry.Column{
		columns.Name(),
		columns.Text(
			"Ready",
			readyDesc,
			func(s *appsv1.StatefulSet) string { return readyText(s.Status.ReadyReplicas, s.Spec.Replicas) },
		),
		columns.Age(),
	}, templateColumns(func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template })...)
}

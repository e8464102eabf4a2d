package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// deployments declares the namespaced kind Deployment.
func deployments(rules *podspec.Rules, terminating terminatingGate) *registry.Kind {
	pods := podspec.PodsOf[*appsv1.Deployment]{
		Template:  func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template },
		Path:      field.NewPath("spec", "template"),
		HostNames: true,
	}
	return podspec.WithPodTemplate(rules, pods, declare.Kind[appsv1.Deployment, appsv1.DeploymentList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "deployments", Kind: "Deployment", ShortNames: []string{"deploy"},
			Categories: []string{"all"}, Namespaced: true,
		},
		Parts: declare.SpecStatusAccessors(func(d *appsv1.Deployment) (*appsv1.DeploymentSpec, *appsv1.DeploymentStatus) {
			return &d.Spec, &d.Status
		}),
		Default:        declare.Adapt(defaultDeployment),
		DefaultedRules: deploymentDefaultedRules,
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, d *appsv1.Deployment) {
				validateDeployment(fld.Child("spec"), rules, &d.Spec, nil)
			}),
		},
		Update: registry.Update{
			Generation: true,
			Prepare:    declare.AdaptUpdate(prepareDeploymentUpdate),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, d, old *appsv1.Deployment) {
				validateDeployment(fld.Child("spec"), rules, &d.Spec, &old.Spec.Template)
				fld.Child("spec").CheckImmutable("selector", d.Spec.Selector, old.Spec.Selector)
			}),
		},
		Presentation: registry.Presentation{Columns: deploymentColumns()},
		Subresources: []registry.Subresource{
			declare.Scale(
				func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
				func(d *appsv1.Deployment) (int32, *metav1.LabelSelector) { return d.Status.Replicas, d.Spec.Selector },
			),
			declare.WithResetFields(declare.ValidatedView("status", "Deployment", func(d, old *appsv1.Deployment) {
				d.Spec = old.Spec
				d.Labels = old.Labels
				terminating.drop(&d.Status.TerminatingReplicas, &old.Status.TerminatingReplicas)
			}, validateDeploymentStatus), "spec", "metadata.labels"),
		},
	}))
}

const (
	// progressDeadline is the default in seconds.
	progressDeadline = 600
	// historyLimit is the default number of old revisions.
	historyLimit = 10
	// rollingShare is the default of both maxUnavailable and maxSurge.
	rollingShare = "25%"
)

func defaultDeployment(d *appsv1.Deployment) {
	spec := &d.Spec
	declare.SetDefaultPtr(&spec.Replicas, 1)
	declare.SetDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		declare.SetDefaultPtr(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		declare.SetDefaultPtr(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString(rollingShare))
		declare.SetDefaultPtr(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString(rollingShare))
	}
	declare.SetDefaultPtr(&spec.RevisionHistoryLimit, historyLimit)
	declare.SetDefaultPtr(&spec.ProgressDeadlineSeconds, progressDeadline)
	poddefaults.Template(&spec.Template)
}

// prepareDeploymentUpdate also increments the generation if annotations change, because the
// controller copies them to the replica sets.
func prepareDeploymentUpdate(d, old *appsv1.Deployment) {
	if !semantic.Equal(d.Annotations, old.Annotations) {
		d.Generation = old.Generation + 1
	}
}

// validateDeployment validates the spec of a new or changed Deployment. old is the stored pod template,
// nil at creation.
func validateDeployment(fld validate.Field, rules *podspec.Rules, spec *appsv1.DeploymentSpec, old *corev1.PodTemplateSpec) {
	validate.OptionalNonNegative(fld, "replicas", spec.Replicas)
	validateReplicaTemplate(fld, rules, spec.Selector, &spec.Template, old)
	switch strategy := &spec.Strategy; strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		fld.Child("strategy").
			ForbidSet("rollingUpdate", strategy.RollingUpdate != nil, "may not be specified when strategy `type` is 'Recreate'")
	case appsv1.RollingUpdateDeploymentStrategyType:
		validate.Optional(fld.Child("strategy"), "rollingUpdate", strategy.RollingUpdate, validateDeploymentRollingUpdate)
	default:
		fld.Add(field.NotSupported(fld.Child("strategy").FieldPath(), validate.InternalValue(*strategy),
			[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType}))
	}
	fld.CheckNonNegative("minReadySeconds", int64(spec.MinReadySeconds))
	validate.OptionalNonNegative(fld, "revisionHistoryLimit", spec.RevisionHistoryLimit)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil {
		fld.CheckNonNegative("progressDeadlineSeconds", int64(*deadline))
		if *deadline <= spec.MinReadySeconds {
			fld.Invalid("progressDeadlineSeconds", *deadline, "must be greater than minReadySeconds")
		}
	}
}

func validateDeploymentRollingUpdate(fld validate.Field, r *appsv1.RollingUpdateDeployment) {
	unavailable := declare.Deref(r.MaxUnavailable)
	fld.CheckNonNegativeIntOrPercent("maxUnavailable", unavailable)
	fld.CheckNonNegativeIntOrPercent("maxSurge", declare.Deref(r.MaxSurge))
	if scaledAmount(r.MaxUnavailable) == 0 && scaledAmount(r.MaxSurge) == 0 {
		fld.Invalid("maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
	}
	fld.CheckAtMost100Percent("maxUnavailable", unavailable)
}

func validateDeploymentStatus(fld validate.Field, d, old *appsv1.Deployment) {
	deploymentStatus, status := &d.Status, fld.Child("status")
	status.CheckNonNegative("observedGeneration", deploymentStatus.ObservedGeneration)
	status.CheckNonNegative("replicas", int64(deploymentStatus.Replicas))
	status.CheckNonNegative("updatedReplicas", int64(deploymentStatus.UpdatedReplicas))
	status.CheckNonNegative("readyReplicas", int64(deploymentStatus.ReadyReplicas))
	status.CheckNonNegative("availableReplicas", int64(deploymentStatus.AvailableReplicas))
	status.CheckNonNegative("unavailableReplicas", int64(deploymentStatus.UnavailableReplicas))
	validate.OptionalNonNegative(status, "terminatingReplicas", deploymentStatus.TerminatingReplicas)
	validate.OptionalNonNegative(status, "collisionCount", deploymentStatus.CollisionCount)
	validate.AtMost(status, "updatedReplicas", deploymentStatus.UpdatedReplicas, deploymentStatus.Replicas, "status.replicas")
	validate.AtMost(status, "readyReplicas", deploymentStatus.ReadyReplicas, deploymentStatus.Replicas, "status.replicas")
	validate.AtMost(status, "availableReplicas", deploymentStatus.AvailableReplicas, deploymentStatus.Replicas, "status.replicas")
	validate.AtMost(status, "availableReplicas", deploymentStatus.AvailableReplicas, deploymentStatus.ReadyReplicas, "readyReplicas")
	status.CheckNotDecremented("collisionCount", deploymentStatus.CollisionCount, old.Status.CollisionCount)
}

// deploymentColumns uses some descriptions of an older version, as in Kubernetes.
func deploymentColumns() []registry.Column {
	stat := func(name string) string { return columns.Doc(appsv1.DeploymentStatus{}, name) }
	// Numbers in columns of type string, as in Kubernetes.
	count := func(name, field string, n func(*appsv1.DeploymentStatus) int32) registry.Column {
		return columns.New(name, columns.String, "", stat(field), 0, func(d *appsv1.Deployment) any { return int64(n(&d.Status)) })
	}
	cols := []registry.Column{
		columns.Name(),
		columns.Text(
			"Ready",
			readyDesc,
			func(d *appsv1.Deployment) string { return readyText(d.Status.ReadyReplicas, d.Spec.Replicas) },
		),
		count("Up-to-date", "updatedReplicas", func(s *appsv1.DeploymentStatus) int32 { return s.UpdatedReplicas }),
		count("Available", "availableReplicas", func(s *appsv1.DeploymentStatus) int32 { return s.AvailableReplicas }),
		columns.Age(),
	}
	cols = append(cols, templateColumns(func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template })...)
	return append(
		cols,
		columns.WideText("Selector", columns.Doc(extensionsv1beta1.DeploymentSpec{}, "selector"), func(d *appsv1.Deployment) string {
			return declare.SelectorString(d.Spec.Selector, "<invalid>")
		}),
	)
}

const readyDesc = "Number of the pod with ready state"

func readyText(ready int32, desired *int32) string {
	return fmt.Sprintf("%d/%d", ready, ptr.Deref(desired, 1))
}

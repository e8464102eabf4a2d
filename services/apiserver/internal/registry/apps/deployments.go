package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
)

func deployments() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "deployments", Singular: "deployment", Kind: "Deployment",
		ShortNames: []string{"deploy"}, Categories: []string{"all"}, Namespaced: true,
		New:           declare.New[appsv1.Deployment],
		NewList:       declare.New[appsv1.DeploymentList],
		Stored:        registry.Stored{Prefix: "deployments"},
		Default:       declare.Do(defaultDeployment),
		Generation:    true,
		PrepareUpdate: declare.Change(prepareDeploymentUpdate),
		Columns:       deploymentColumns(),
		Subresources: []registry.Subresource{
			declare.Scale(
				func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
				func(d *appsv1.Deployment) (int32, *metav1.LabelSelector) { return d.Status.Replicas, d.Spec.Selector },
			),
			declare.Resetting(declare.View("status", "Deployment", declare.Change(func(d, old *appsv1.Deployment) {
				d.Spec, d.Labels = old.Spec, old.Labels
			})), "spec", "metadata.labels"),
		},
	}
}

const (
	// progressDeadline in seconds.
	progressDeadline = 600
	// historyLimit is how many old revisions are kept.
	historyLimit = 10
	// rollingShare of the pods may be missing, and as many be too many.
	rollingShare = "25%"
)

func defaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	declare.FillPtr(&s.Replicas, 1)
	declare.Fill(&s.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		declare.FillPtr(&s.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		declare.FillPtr(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString(rollingShare))
		declare.FillPtr(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString(rollingShare))
	}
	declare.FillPtr(&s.RevisionHistoryLimit, historyLimit)
	declare.FillPtr(&s.ProgressDeadlineSeconds, progressDeadline)
	podspec.Template(&s.Template)
}

// prepareDeploymentUpdate raises the generation for annotations as well: the
// controller copies them to the replica sets.
func prepareDeploymentUpdate(d, old *appsv1.Deployment) {
	if !equality.Semantic.DeepEqual(d.Annotations, old.Annotations) {
		d.Generation = old.Generation + 1
	}
}

// Some descriptions are those of an older version, as clients know them.
func deploymentColumns() []registry.Column {
	stat := func(name string) string { return columns.Doc(appsv1.DeploymentStatus{}, name) }
	// Numbers in columns that say they are strings, as clients know them.
	count := func(name, field string, n func(*appsv1.DeploymentStatus) int32) registry.Column {
		return columns.Of(name, columns.String, "", stat(field), 0, func(d *appsv1.Deployment) any { return int64(n(&d.Status)) })
	}
	cols := []registry.Column{
		columns.Name(),
		columns.Text("Ready", readyDesc, func(d *appsv1.Deployment) string { return readyText(d.Status.ReadyReplicas, d.Spec.Replicas) }),
		count("Up-to-date", "updatedReplicas", func(s *appsv1.DeploymentStatus) int32 { return s.UpdatedReplicas }),
		count("Available", "availableReplicas", func(s *appsv1.DeploymentStatus) int32 { return s.AvailableReplicas }),
		columns.Age(),
	}
	cols = append(cols, templateColumns(func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template })...)
	return append(cols, columns.WideText("Selector", columns.Doc(extensionsv1beta1.DeploymentSpec{}, "selector"), func(d *appsv1.Deployment) string {
		return declare.SelectorText(d.Spec.Selector, "<invalid>")
	}))
}

const readyDesc = "Number of the pod with ready state"

func readyText(ready int32, wanted *int32) string {
	return fmt.Sprintf("%d/%d", ready, declare.Replicas(wanted))
}

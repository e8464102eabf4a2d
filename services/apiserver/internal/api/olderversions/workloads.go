package olderversions

import (
	"maps"
	"math"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry/declare"
)

// defaultFromTemplate sets the selector and the labels of an object, if they are missing, to the
// labels of its pod template.
func defaultFromTemplate(meta *metav1.ObjectMeta, selector **metav1.LabelSelector, template *corev1.PodTemplateSpec) {
	labels := template.Labels
	if labels == nil {
		return
	}
	if *selector == nil {
		*selector = &metav1.LabelSelector{MatchLabels: maps.Clone(labels)}
	}
	if len(meta.Labels) == 0 {
		meta.Labels = maps.Clone(labels)
	}
}

// defaultReplicaSet sets the defaults of extensions/v1beta1.
func defaultReplicaSet(r *appsv1.ReplicaSet) {
	defaultFromTemplate(&r.ObjectMeta, &r.Spec.Selector, &r.Spec.Template)
}

// defaultStatefulSet sets the defaults of apps/v1beta1.
func defaultStatefulSet(s *appsv1.StatefulSet) {
	declare.SetDefault(&s.Spec.UpdateStrategy.Type, appsv1.OnDeleteStatefulSetStrategyType)
	defaultFromTemplate(&s.ObjectMeta, &s.Spec.Selector, &s.Spec.Template)
}

// convertDaemonSet converts a DaemonSet of extensions/v1beta1, whose field templateGeneration is an
// annotation in apps/v1. In that version, the default update strategy is OnDelete.
func convertDaemonSet(old *extensionsv1beta1.DaemonSet) (*appsv1.DaemonSet, error) {
	daemonSet := &appsv1.DaemonSet{}
	if err := copyByFieldNumber(old, daemonSet); err != nil {
		return nil, err
	}
	metav1.SetMetaDataAnnotation(
		&daemonSet.ObjectMeta,
		appsv1.DeprecatedTemplateGeneration,
		strconv.FormatInt(old.Spec.TemplateGeneration, 10),
	)
	declare.SetDefault(&daemonSet.Spec.UpdateStrategy.Type, appsv1.OnDeleteDaemonSetStrategyType)
	defaultFromTemplate(&daemonSet.ObjectMeta, &daemonSet.Spec.Selector, &daemonSet.Spec.Template)
	return daemonSet, nil
}

// convertExtensionsDeployment converts a Deployment of extensions/v1beta1. In that version, rolling
// updates by default replace one pod at a time, and all revisions are kept.
func convertExtensionsDeployment(old *extensionsv1beta1.Deployment) (*appsv1.Deployment, error) {
	deployment, err := convertDeploymentFields(old)
	if err != nil {
		return nil, err
	}
	strategy := &deployment.Spec.Strategy
	declare.SetDefault(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		declare.SetDefaultPtr(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
	}
	if u := strategy.RollingUpdate; u != nil {
		declare.SetDefaultPtr(&u.MaxUnavailable, intstr.FromInt32(1))
		declare.SetDefaultPtr(&u.MaxSurge, intstr.FromInt32(1))
	}
	declare.SetDefaultPtr(&deployment.Spec.ProgressDeadlineSeconds, math.MaxInt32)
	declare.SetDefaultPtr(&deployment.Spec.RevisionHistoryLimit, math.MaxInt32)
	return deployment, nil
}

// convertBeta1Deployment converts a Deployment of apps/v1beta1, which has the same fields as in
// extensions/v1beta1. In that version, two revisions are kept by default.
func convertBeta1Deployment(old *extensionsv1beta1.Deployment) (*appsv1.Deployment, error) {
	deployment, err := convertDeploymentFields(old)
	if err != nil {
		return nil, err
	}
	declare.SetDefaultPtr(&deployment.Spec.RevisionHistoryLimit, 2)
	return deployment, nil
}

// convertDeploymentFields converts a Deployment without the defaults in which the two older
// versions differ. The field rollbackTo is an annotation in apps/v1.
func convertDeploymentFields(old *extensionsv1beta1.Deployment) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	if err := copyByFieldNumber(old, deployment); err != nil {
		return nil, err
	}
	delete(deployment.Annotations, appsv1.DeprecatedRollbackTo)
	if r := old.Spec.RollbackTo; r != nil {
		metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, appsv1.DeprecatedRollbackTo, strconv.FormatInt(r.Revision, 10))
	}
	defaultFromTemplate(&deployment.ObjectMeta, &deployment.Spec.Selector, &deployment.Spec.Template)
	return deployment, nil
}

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

// fillFromTemplate sets the selector and the labels of an object to the labels of its pod template.
func fillFromTemplate(m *metav1.ObjectMeta, selector **metav1.LabelSelector, template *corev1.PodTemplateSpec) {
	labels := template.Labels
	if labels == nil {
		return
	}
	if *selector == nil {
		*selector = &metav1.LabelSelector{MatchLabels: maps.Clone(labels)}
	}
	if len(m.Labels) == 0 {
		m.Labels = maps.Clone(labels)
	}
}

func fillReplicaSet(r *appsv1.ReplicaSet) {
	fillFromTemplate(&r.ObjectMeta, &r.Spec.Selector, &r.Spec.Template)
}

func fillStatefulSet(s *appsv1.StatefulSet) {
	declare.SetDefault(&s.Spec.UpdateStrategy.Type, appsv1.OnDeleteStatefulSetStrategyType)
	fillFromTemplate(&s.ObjectMeta, &s.Spec.Selector, &s.Spec.Template)
}

func daemonSet(old *extensionsv1beta1.DaemonSet) (*appsv1.DaemonSet, error) {
	d := &appsv1.DaemonSet{}
	if err := sameNumbers(old, d); err != nil {
		return nil, err
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(old.Spec.TemplateGeneration, 10))
	declare.SetDefault(&d.Spec.UpdateStrategy.Type, appsv1.OnDeleteDaemonSetStrategyType)
	fillFromTemplate(&d.ObjectMeta, &d.Spec.Selector, &d.Spec.Template)
	return d, nil
}

// deploymentOfExtensions converts a Deployment of extensions/v1beta1. There rolling updates replace
// one pod at a time, and all revisions are kept.
func deploymentOfExtensions(old *extensionsv1beta1.Deployment) (*appsv1.Deployment, error) {
	d, err := deployment(old)
	if err != nil {
		return nil, err
	}
	strategy := &d.Spec.Strategy
	declare.SetDefault(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		declare.SetDefaultPtr(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
	}
	if u := strategy.RollingUpdate; u != nil {
		declare.SetDefaultPtr(&u.MaxUnavailable, intstr.FromInt32(1))
		declare.SetDefaultPtr(&u.MaxSurge, intstr.FromInt32(1))
	}
	declare.SetDefaultPtr(&d.Spec.ProgressDeadlineSeconds, math.MaxInt32)
	declare.SetDefaultPtr(&d.Spec.RevisionHistoryLimit, math.MaxInt32)
	return d, nil
}

// deploymentOfBeta1 converts a Deployment of apps/v1beta1. It has the fields of extensions/v1beta1
// and keeps two revisions.
func deploymentOfBeta1(old *extensionsv1beta1.Deployment) (*appsv1.Deployment, error) {
	d, err := deployment(old)
	if err != nil {
		return nil, err
	}
	declare.SetDefaultPtr(&d.Spec.RevisionHistoryLimit, 2)
	return d, nil
}

// deployment converts the parts that both versions share. apps/v1 has an annotation in place of the
// field rollbackTo.
func deployment(old *extensionsv1beta1.Deployment) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	if err := sameNumbers(old, d); err != nil {
		return nil, err
	}
	delete(d.Annotations, appsv1.DeprecatedRollbackTo)
	if r := old.Spec.RollbackTo; r != nil {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedRollbackTo, strconv.FormatInt(r.Revision, 10))
	}
	fillFromTemplate(&d.ObjectMeta, &d.Spec.Selector, &d.Spec.Template)
	return d, nil
}

package podsecurity

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
)

// hasTemplate reports whether the resource of a request has pod templates.
func hasTemplate(r *admission.Request) bool {
	return r.IsResource("", "replicationcontrollers") || r.IsResource("", "podtemplates") || r.IsResource("apps", "replicasets") || r.IsResource("apps", "deployments") ||
		r.IsResource("apps", "statefulsets") || r.IsResource("apps", "daemonsets") || r.IsResource("batch", "jobs") ||
		r.IsResource("batch", "cronjobs")
}

// templateOf returns the pod template of an object. It returns nil for a ReplicationController
// without a template.
func templateOf(obj any) (*corev1.PodTemplateSpec, error) {
	switch o := obj.(type) {
	case *corev1.PodTemplate:
		return &o.Template, nil
	case *corev1.ReplicationController:
		return o.Spec.Template, nil
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, nil
	case *appsv1.Deployment:
		return &o.Spec.Template, nil
	case *appsv1.DaemonSet:
		return &o.Spec.Template, nil
	case *appsv1.StatefulSet:
		return &o.Spec.Template, nil
	case *batchv1.Job:
		return &o.Spec.Template, nil
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, nil
	}
	return nil, fmt.Errorf("unexpected object type: %T", obj)
}

package registry

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scale says where a kind keeps what autoscaling/v1 Scale shows.
type Scale struct {
	Replicas    func(Object) int32
	SetReplicas func(Object, int32)
	// Status returns the observed replicas and the selector in text form.
	Status func(Object) (replicas int32, selector string)
	// Path leads to the replicas; nil is spec, replicas.
	Path []string
	// Versions are the paths to the replicas in all versions of the kind, by apiVersion; nil for a
	// version without a scale. Where Versions is nil, the kind has one version.
	Versions map[string][]string
	// Missing, if set, tells why an object has no scale that could be read.
	Missing func(Object) error
	// Unconditional lets a scale without a resourceVersion be written.
	Unconditional bool
}

// FieldPath leads to the replicas.
func (s *Scale) FieldPath() []string {
	if s.Path == nil {
		return []string{"spec", "replicas"}
	}
	return s.Path
}

// Of shows an object as its scale.
func (s *Scale) Of(obj Object) *autoscalingv1.Scale {
	replicas, selector := s.Status(obj)
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: s.Replicas(obj)},
		Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: selector},
	}
}

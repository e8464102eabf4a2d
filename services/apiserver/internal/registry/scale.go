package registry

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scale defines how the fields of an autoscaling/v1 Scale are stored in a kind.
type Scale struct {
	Replicas    func(Object) int32
	SetReplicas func(Object, int32)
	// Status returns the observed replicas and the selector as text.
	Status func(Object) (replicas int32, selector string)
	// Path is the path to the replicas; nil means spec, replicas.
	Path []string
	// Versions holds the paths to the replicas in all versions of the kind, by apiVersion; nil for
	// a version without a scale. If Versions is nil, the kind has one version.
	Versions map[string][]string
	// Validate, if set, returns an error if an object has no readable scale.
	Validate func(Object) error
	// AllowUnconditionalUpdate allows writes of a scale without a resourceVersion.
	AllowUnconditionalUpdate bool
	// ValidatedWithObject means that the rules of the object cover its replicas. Otherwise invalid
	// metadata of the scale and negative replicas are rejected.
	ValidatedWithObject bool
	// Columns holds what differs from built-in kinds in the Table of a scale.
	Columns ScaleColumns
}

// ScaleColumns holds the descriptions of the replica columns, and the type of the age column. Empty
// texts mean the ones of built-in kinds.
type ScaleColumns struct{ Desired, Available, AgeType string }

// FieldPath returns the path to the replicas.
func (s *Scale) FieldPath() []string {
	if s.Path == nil {
		return []string{"spec", "replicas"}
	}
	return s.Path
}

// FromObject returns the scale of an object.
func (s *Scale) FromObject(obj Object) *autoscalingv1.Scale {
	replicas, selector := s.Status(obj)
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              obj.GetName(),
			Namespace:         obj.GetNamespace(),
			UID:               obj.GetUID(),
			ResourceVersion:   obj.GetResourceVersion(),
			CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: s.Replicas(obj)},
		Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: selector},
	}
}

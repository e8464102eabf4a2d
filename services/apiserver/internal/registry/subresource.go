package registry

import (
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Subresource declares a path below an object.
type Subresource struct {
	Name string
	// GVK is the kind of the request and response body. It has only a Kind if group and version are
	// those of the parent.
	GVK   schema.GroupVersionKind
	Verbs []string
	// New returns the Go type if it differs from the parent's.
	New func() runtime.Object

	// Prepare, for a subresource that is a view of the parent object (status, approval, finalize),
	// copies from old to obj all fields that the subresource must not change. Nil for
	// "status" means the default rule: only the status changes.
	Prepare func(obj, old Object)
	// ValidateUpdate validates a change through the subresource.
	ValidateUpdate func(obj, old Object) field.ErrorList
	// Order lists the rules for a change. Their errors are reported in this order.
	Order Order
	// Warnings returns texts of Warning headers for a change through the subresource.
	Warnings func(Object) []string
	// Connect makes the subresource a connection to another server, such as the kubelet of a pod.
	// It has no timeout, and accepts and returns any media type. AllowSubpaths includes all paths
	// below the subresource.
	Connect, AllowSubpaths bool
	// NoTable means that the subresource has no Table representation.
	NoTable bool
	// Scale, if set, makes the subresource a scale.
	Scale *Scale

	// ResetFields are the dotted paths of fields that a write through the subresource does not
	// change. A manager that sends them does not own them. Nil for "status" means spec.
	ResetFields []string
}

// Subresource returns the declaration of a subresource, or nil.
func (k *Kind) Subresource(name string) *Subresource {
	for i := range k.Subresources {
		if k.Subresources[i].Name == name {
			return &k.Subresources[i]
		}
	}
	return nil
}

// HasStatus reports whether the kind has the status subresource.
func (k *Kind) HasStatus() bool { return k.Subresource("status") != nil }

// ResetFields returns the dotted paths of fields that a write through a subresource, or through the
// object's own path, does not change.
func (k *Kind) ResetFields(sub *Subresource) []string {
	switch {
	case sub == nil && k.Update.ResetFields == nil && k.HasStatus():
		return []string{"status"}
	case sub == nil:
		return k.Update.ResetFields
	case sub.ResetFields == nil && sub.Name == "status":
		return []string{"spec"}
	}
	return sub.ResetFields
}

// HasVerb reports whether the subresource supports a verb.
func (s *Subresource) HasVerb(verb string) bool { return slices.Contains(s.Verbs, verb) }

// Scale defines which fields of a kind hold the values of an autoscaling/v1 Scale.
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
	// Validate, if set, returns an error for an object whose scale cannot be read.
	Validate func(Object) error
	// AllowUnconditionalUpdate allows writes of a scale without a resourceVersion.
	AllowUnconditionalUpdate bool
	// ValidatedWithObject means that the rules of the object cover its replicas. Otherwise invalid
	// metadata of the scale and negative replicas are rejected.
	ValidatedWithObject bool
	// Columns holds the texts of a scale's Table that differ from those of built-in kinds.
	Columns ScaleColumns
}

// ScaleColumns holds texts of a scale's Table. An empty text means the one of built-in kinds.
type ScaleColumns struct {
	Desired, Available string // descriptions of the columns
	AgeType            string // type of the column Age
}

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

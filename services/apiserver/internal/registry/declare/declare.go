// Package declare has the words that the files of the kinds have in common:
// makers of Go values, rules written for one Go type in place of any object,
// and the usual sub-resources. It keeps no state; the groups call it while they
// declare themselves.
package declare

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/validate"
)

// pointer is *T, which is what API objects are.
type pointer[T any] interface {
	*T
	runtime.Object
}

// New makes an empty value of a Go type: New[appsv1.Deployment].
func New[T any, P pointer[T]]() runtime.Object { return P(new(T)) }

// Do makes a rule for one Go type out of a rule for objects. An object of
// another type is a fault of the caller and panics: no rule is skipped.
func Do[T registry.Object](f func(T)) func(registry.Object) {
	return func(o registry.Object) { f(o.(T)) }
}

// Change is Do for a new object and the live one.
func Change[T registry.Object](f func(obj, old T)) func(obj, old registry.Object) {
	return func(obj, old registry.Object) { f(obj.(T), old.(T)) }
}

// Get is Do for a rule with a result.
func Get[T registry.Object, R any](f func(T) R) func(registry.Object) R {
	return func(o registry.Object) R { return f(o.(T)) }
}

// GetChange is Change for a rule with a result.
func GetChange[T registry.Object, R any](f func(obj, old T) R) func(obj, old registry.Object) R {
	return func(obj, old registry.Object) R { return f(obj.(T), old.(T)) }
}

// Rules makes the rules for an object out of those for one Go type.
func Rules[T registry.Object](rules func(at validate.At, obj T)) func(registry.Object) field.ErrorList {
	return func(o registry.Object) field.ErrorList {
		return validate.Check(func(at validate.At) { rules(at, o.(T)) })
	}
}

// Changes is Rules for a new object and the live one.
func Changes[T registry.Object](rules func(at validate.At, obj, old T)) func(obj, old registry.Object) field.ErrorList {
	return func(o, l registry.Object) field.ErrorList {
		return validate.Check(func(at validate.At) { rules(at, o.(T), l.(T)) })
	}
}

// Parts are those of a kind that has a specification and a status.
func Parts[T registry.Object, S, U any](of func(T) (*S, *U)) registry.Parts {
	p := Spec(func(o T) *S { spec, _ := of(o); return spec })
	p.CopyStatus = func(to, from registry.Object) {
		var status U
		if from != nil {
			_, have := of(from.(T))
			status = *have
		}
		_, into := of(to.(T))
		*into = status
	}
	return p
}

// Spec is Parts for a kind without a status.
func Spec[T registry.Object, S any](of func(T) *S) registry.Parts {
	return registry.Parts{
		CopySpec: func(to, from registry.Object) { *of(to.(T)) = *of(from.(T)) },
		SpecChanged: func(obj, old registry.Object) bool {
			return !semantic.Equal(of(obj.(T)), of(old.(T)))
		},
	}
}

// Also serves a kind in another version, whose objects look the same; they are
// stored as before.
func Also(version string, k *registry.Kind) *registry.Kind {
	stored := k.StoredGVK().GroupVersion()
	k.Version, k.Stored.Version = version, stored
	return k
}

// Edit are the verbs of sub-resources that are another view of the object.
func Edit() []string { return []string{"get", "patch", "update"} }

// Status is the status sub-resource with the usual rule: it leaves the spec as
// it is, and metadata to the client.
func Status(kind string) registry.Subresource { return View("status", kind, nil) }

// View is a sub-resource that is another way to edit the object; prepare takes
// over from the live object what cannot be changed that way.
func View(name, kind string, prepare func(obj, old registry.Object)) registry.Subresource {
	return registry.Subresource{Name: name, GVK: schema.GroupVersionKind{Kind: kind}, Verbs: Edit(), Prepare: prepare}
}

// CheckedView is View with rules of its own for changes.
func CheckedView[T registry.Object](name, kind string, prepare func(obj, old T), check func(at validate.At, obj, old T)) registry.Subresource {
	s := View(name, kind, Change(prepare))
	s.ValidateUpdate = Changes(check)
	return s
}

// CheckedStatus is Status with rules of its own for changes.
func CheckedStatus[T registry.Object](kind string, check func(at validate.At, obj, old T)) registry.Subresource {
	s := Status(kind)
	s.ValidateUpdate = Changes(check)
	return s
}

// Resetting says which fields a sub-resource leaves as they are, as dotted
// paths: who sends them there does not own them. Without any it leaves none.
func Resetting(s registry.Subresource, paths ...string) registry.Subresource {
	s.Resets = append([]string{}, paths...)
	return s
}

// Owning says which fields alone a sub-resource changes, as dotted paths in which
// * is any element.
func Owning(s registry.Subresource, paths ...string) registry.Subresource {
	s.Owns = paths
	return s
}

// Warning has a sub-resource warn of what is sent to it.
func Warning[T registry.Object](s registry.Subresource, warnings func(T) []string) registry.Subresource {
	s.Warnings = Get(warnings)
	return s
}

// Scale is the scale sub-resource of a kind whose number of replicas is 1
// unless said otherwise.
func Scale[T registry.Object](replicas func(T) **int32, status func(T) (int32, *metav1.LabelSelector)) registry.Subresource {
	return registry.Subresource{
		Name: "scale", Verbs: Edit(),
		GVK: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
		New: New[autoscalingv1.Scale],
		Scale: &registry.Scale{
			Replicas:    func(o registry.Object) int32 { return Replicas(*replicas(o.(T))) },
			SetReplicas: func(o registry.Object, n int32) { *replicas(o.(T)) = &n },
			Status: func(o registry.Object) (int32, string) {
				n, selector := status(o.(T))
				return n, SelectorText(selector, "")
			},
		},
	}
}

// OrZero is the value of a pointer, and the zero value of a nil one.
func OrZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// Replicas is the wanted number: 1 unless said otherwise.
func Replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// SelectorText is a label selector in the form of the query parameter; invalid
// stands for one that cannot be told.
func SelectorText(s *metav1.LabelSelector, invalid string) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return invalid
	}
	return selector.String()
}

// KeepMeta resets the metadata that a status update must not change to what
// the live object has.
func KeepMeta(obj, old registry.Object) { metav1.ResetObjectMetaForStatus(obj, old) }

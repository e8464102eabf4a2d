// Package declare has helpers that the declarations of kinds share: constructors of Go values,
// adapters from rules for one Go type to rules for any object, and the common subresources. It has
// no state.
package declare

import (
	"reflect"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/validate"
)

// pointerTo is the type *T, which implements runtime.Object.
type pointerTo[T any] interface {
	*T
	runtime.Object
}

// New returns an empty value of a Go type: New[appsv1.Deployment].
func New[T any, P pointerTo[T]]() runtime.Object { return P(new(T)) }

// Kind completes the declaration of a kind and returns it. T and L are the Go types of its objects
// and lists. The singular name defaults to the kind in lower case, the storage prefix to the
// resource.
func Kind[T, L any, P pointerTo[T], PL pointerTo[L]](kind *registry.Kind) *registry.Kind {
	kind.New, kind.NewList = New[T, P], New[L, PL]
	SetDefault(&kind.Singular, strings.ToLower(kind.Kind))
	if !kind.Virtual {
		SetDefault(&kind.Stored.Prefix, kind.Resource)
	}
	return kind
}

// Adapt adapts a rule for one Go type to a rule for objects. Like all adapters in this package, it
// panics if the object has another type, so that no rule is skipped because of a programming
// error.
func Adapt[T registry.Object](f func(T)) func(registry.Object) {
	return func(o registry.Object) { f(o.(T)) }
}

// AdaptUpdate adapts a rule that takes the new and the live object.
func AdaptUpdate[T registry.Object](f func(obj, old T)) func(obj, old registry.Object) {
	return func(obj, old registry.Object) { f(obj.(T), old.(T)) }
}

// AdaptResult adapts a rule that takes an object and returns a result.
func AdaptResult[T registry.Object, R any](f func(T) R) func(registry.Object) R {
	return func(o registry.Object) R { return f(o.(T)) }
}

// AdaptUpdateResult adapts a rule that takes the new and the live object and returns a result.
func AdaptUpdateResult[T registry.Object, R any](f func(obj, old T) R) func(obj, old registry.Object) R {
	return func(obj, old registry.Object) R { return f(obj.(T), old.(T)) }
}

// AdaptValidation adapts validation rules for one Go type to rules for objects.
func AdaptValidation[T registry.Object](rules func(fld validate.Field, obj T)) func(registry.Object) field.ErrorList {
	return func(o registry.Object) field.ErrorList {
		return validate.Check(func(fld validate.Field) { rules(fld, o.(T)) })
	}
}

// AdaptUpdateValidation adapts validation rules that take the new and the live object.
func AdaptUpdateValidation[T registry.Object](
	rules func(fld validate.Field, obj, old T),
) func(obj, old registry.Object) field.ErrorList {
	return func(obj, old registry.Object) field.ErrorList {
		return validate.Check(func(fld validate.Field) { rules(fld, obj.(T), old.(T)) })
	}
}

// SetValidation sets the validation of a kind for new objects, whose old is nil, and for changes.
func SetValidation[T registry.Object](kind *registry.Kind, rules func(fld validate.Field, obj, old T)) {
	kind.Create.Validate = AdaptValidation(func(fld validate.Field, obj T) {
		var none T
		rules(fld, obj, none)
	})
	kind.Update.Validate = AdaptUpdateValidation(rules)
}

// SpecStatusAccessors returns the registry.SpecStatusAccessors of a kind. partsOf returns pointers
// to the spec and status of an object.
func SpecStatusAccessors[T registry.Object, S, U any](partsOf func(T) (*S, *U)) registry.SpecStatusAccessors {
	accessors := SpecAccessors(func(o T) *S { spec, _ := partsOf(o); return spec })
	accessors.CopyStatus = func(to, from registry.Object) {
		_, target := partsOf(to.(T))
		if from == nil { // A nil from clears the status.
			var empty U
			*target = empty
			return
		}
		_, source := partsOf(from.(T))
		*target = *source
	}
	return accessors
}

// SpecAccessors returns the registry.SpecStatusAccessors of a kind without a status. specOf returns
// a pointer to the spec of an object.
func SpecAccessors[T registry.Object, S any](specOf func(T) *S) registry.SpecStatusAccessors {
	return registry.SpecStatusAccessors{
		CopySpec: func(to, from registry.Object) { *specOf(to.(T)) = *specOf(from.(T)) },
		SpecChanged: func(obj, old registry.Object) bool {
			return !semantic.Equal(specOf(obj.(T)), specOf(old.(T)))
		},
	}
}

// ExactSpecAccessors is SpecAccessors for kinds that count a change between an absent and an empty
// list as a change of the spec, as Kubernetes does for a few kinds.
func ExactSpecAccessors[T registry.Object, S any](specOf func(T) *S) registry.SpecStatusAccessors {
	accessors := SpecAccessors(specOf)
	accessors.SpecChanged = func(obj, old registry.Object) bool {
		return !reflect.DeepEqual(specOf(obj.(T)), specOf(old.(T)))
	}
	return accessors
}

// AdditionalVersion changes a kind to be served in another version that has the same fields. Objects are
// still stored in the previous version. It returns the kind.
func AdditionalVersion(version string, kind *registry.Kind) *registry.Kind {
	stored := kind.StoredGVK().GroupVersion()
	kind.Version = version
	kind.Stored.Version = stored
	return kind
}

// ViewVerbs returns the verbs of subresources that are views of the object.
func ViewVerbs() []string { return []string{"get", "patch", "update"} }

// Status returns the status subresource with the default rule: it does not change the spec, and
// clients may change metadata.
func Status(kind string) registry.Subresource { return View("status", kind, nil) }

// View returns a subresource that is a view of the object. prepare copies from the live object the
// fields that cannot be changed through it.
func View(name, kind string, prepare func(obj, old registry.Object)) registry.Subresource {
	return registry.Subresource{Name: name, GVK: schema.GroupVersionKind{Kind: kind}, Verbs: ViewVerbs(), Prepare: prepare}
}

// ValidatedView returns a subresource like View, with additional rules for changes.
func ValidatedView[T registry.Object](
	name, kind string,
	prepare func(obj, old T),
	check func(fld validate.Field, obj, old T),
) registry.Subresource {
	s := View(name, kind, AdaptUpdate(prepare))
	s.ValidateUpdate = AdaptUpdateValidation(check)
	return s
}

// ValidatedStatus returns a subresource like Status, with additional rules for changes.
func ValidatedStatus[T registry.Object](kind string, check func(fld validate.Field, obj, old T)) registry.Subresource {
	s := Status(kind)
	s.ValidateUpdate = AdaptUpdateValidation(check)
	return s
}

// WithoutTable returns the subresource without support for responses in the form of a Table.
func WithoutTable(subresource registry.Subresource) registry.Subresource {
	subresource.NoTable = true
	return subresource
}

// WithValidationOrder sets the order of the rules of a subresource.
func WithValidationOrder(s registry.Subresource, order ...registry.Rule) registry.Subresource {
	s.Order = order
	return s
}

// WithResetFields sets ResetFields of a subresource: the dotted paths of the fields that a write
// through it does not change. No paths mean that it resets no field. That differs from a nil
// ResetFields, which means the spec for the status subresource.
func WithResetFields(s registry.Subresource, paths ...string) registry.Subresource {
	s.ResetFields = append([]string{}, paths...)
	return s
}

// WithWarnings sets the warnings of a subresource.
func WithWarnings[T registry.Object](s registry.Subresource, warnings func(T) []string) registry.Subresource {
	s.Warnings = AdaptResult(warnings)
	return s
}

// Scale returns the scale subresource of a kind whose default number of replicas is 1.
func Scale[T registry.Object](replicas func(T) **int32, status func(T) (int32, *metav1.LabelSelector)) registry.Subresource {
	return registry.Subresource{
		Name:  "scale",
		Verbs: ViewVerbs(),
		GVK:   autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
		New:   New[autoscalingv1.Scale],
		Scale: &registry.Scale{
			Replicas:    func(o registry.Object) int32 { return ptr.Deref(*replicas(o.(T)), 1) },
			SetReplicas: func(o registry.Object, n int32) { *replicas(o.(T)) = &n },
			Status: func(o registry.Object) (int32, string) {
				n, selector := status(o.(T))
				return n, SelectorString(selector, "")
			},
		},
	}
}

// Deref returns the value of a pointer, or the zero value for nil.
func Deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// SelectorString returns a label selector as the text of a query parameter. It returns the text
// invalid for an invalid selector.
func SelectorString(s *metav1.LabelSelector, invalid string) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return invalid
	}
	return selector.String()
}

// ResetMetaForStatus resets the metadata that a status update must not change to the metadata of
// the live object.
func ResetMetaForStatus(obj, old registry.Object) { metav1.ResetObjectMetaForStatus(obj, old) }

package views

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fieldpath "k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/status"
)

// KindError reports that a change gave an object another kind.
type KindError struct {
	From, To schema.GroupVersionKind
	Object   runtime.Object
}

func (e *KindError) Error() string {
	return fmt.Sprintf("the kind changed from %s to %s", e.From, e.To)
}

// Status returns the error in the words of Kubernetes, which converts the object to its former
// kind.
func (e *KindError) Status() error {
	u, ok := e.Object.(*unstructured.Unstructured)
	switch {
	case !ok:
		group, _, _ := strings.Cut(cmp.Or(e.From.Group, "core"), ".")
		to := strings.TrimPrefix(fmt.Sprintf("%T", e.Object), "*")
		return status.Failed(fmt.Sprintf("converting (%s) to (%s.%s): unknown conversion", to, group, e.From.Kind))
	case e.To.GroupVersion() != e.From.GroupVersion():
		return status.Failed(fmt.Sprintf("%s is unstructured and is not suitable for converting to %q", e.To, e.From.GroupVersion()))
	}
	return status.Invalid(e.To.GroupKind(), u.GetName(), fieldpath.ErrorList{fieldpath.Invalid(fieldpath.NewPath("kind"), e.To.Kind, "must be "+e.From.Kind)})
}

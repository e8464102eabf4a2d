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

// KindError reports that a webhook or policy changed the kind of an object, which is not permitted.
type KindError struct {
	From, To schema.GroupVersionKind
	Object   runtime.Object
}

func (e *KindError) Error() string {
	return fmt.Sprintf("the kind changed from %s to %s", e.From, e.To)
}

// Status returns the error as a Status with the message of Kubernetes. Kubernetes tries to convert
// the changed object to its former kind, so the message is about a conversion.
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
	return status.Invalid(e.To.GroupKind(), u.GetName(),
		fieldpath.ErrorList{fieldpath.Invalid(fieldpath.NewPath("kind"), e.To.Kind, "must be "+e.From.Kind)})
}

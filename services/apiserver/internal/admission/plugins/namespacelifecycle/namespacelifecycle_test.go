package namespacelifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/namespacelifecycle"
	"binnacle/services/apiserver/internal/registry"
)

// failing is a source of namespaces whose lookups fail.
type failing struct{ err error }

func (f failing) Phase(context.Context, string) (exists, terminating bool, err error) {
	return false, false, f.err
}

// TestNamespaceLookupErrors checks that an expired request is not reported as an internal error.
func TestNamespaceLookupErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want metav1.StatusReason
	}{
		{err: fmt.Errorf("read: %w", context.DeadlineExceeded), want: metav1.StatusReasonTimeout},
		{err: context.Canceled, want: metav1.StatusReasonTimeout},
		{err: errors.New("no store"), want: metav1.StatusReasonInternalError},
	} {
		p := &namespacelifecycle.Plugin{Namespaces: failing{tc.err}}
		a := &admission.Request{Operation: admission.Create, Namespace: "a", Resource: &registry.Kind{}}
		if err := p.Admit(t.Context(), a); apierrors.ReasonForError(err) != tc.want {
			t.Errorf("lookup fails with %v: got error %v, want one with reason %s", tc.err, err, tc.want)
		}
	}
}

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

// TestExpiredLookupIsReportedAsTimeout checks that an expired request is not reported as an
// internal error.
func TestExpiredLookupIsReportedAsTimeout(t *testing.T) {
	for _, test := range []struct {
		err  error
		want metav1.StatusReason
	}{
		{err: fmt.Errorf("read: %w", context.DeadlineExceeded), want: metav1.StatusReasonTimeout},
		{err: context.Canceled, want: metav1.StatusReasonTimeout},
		{err: errors.New("no store"), want: metav1.StatusReasonInternalError},
	} {
		plugin := &namespacelifecycle.Plugin{Namespaces: failing{test.err}}
		req := &admission.Request{Operation: admission.Create, Namespace: "a", Resource: &registry.Kind{}}
		if err := plugin.Admit(t.Context(), req); apierrors.ReasonForError(err) != test.want {
			t.Errorf("lookup fails with %v: got error %v, want one with reason %s", test.err, err, test.want)
		}
	}
}

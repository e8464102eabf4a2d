package namespacelifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
		want func(error) bool
	}{
		{err: fmt.Errorf("read: %w", context.DeadlineExceeded), want: apierrors.IsTimeout},
		{err: context.Canceled, want: apierrors.IsTimeout},
		{err: errors.New("no store"), want: apierrors.IsInternalError},
	} {
		p := &namespacelifecycle.Plugin{Namespaces: failing{tc.err}}
		a := &admission.Request{Operation: admission.Create, Namespace: "a", Resource: &registry.Kind{}}
		if err := p.Admit(t.Context(), a); !tc.want(err) {
			t.Errorf("%v: got %v", tc.err, err)
		}
	}
}

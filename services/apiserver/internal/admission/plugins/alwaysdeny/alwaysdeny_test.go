package alwaysdeny_test

import (
	"testing"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/alwaysdeny"
	"binnacle/services/apiserver/internal/registry"
)

// TestEveryRequestIsRejected checks that both phases reject every operation.
func TestEveryRequestIsRejected(t *testing.T) {
	const want = `pods "p" is forbidden: admission control is denying all modifications`
	for _, op := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
		req := &admission.Request{Operation: op, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Name: "p"}
		if err := (alwaysdeny.Plugin{}).Admit(t.Context(), req); err == nil || err.Error() != want {
			t.Errorf("%s, mutating: got error %v, want %q", op, err, want)
		}
		if err := (alwaysdeny.Plugin{}).Validate(t.Context(), req); err == nil || err.Error() != want {
			t.Errorf("%s, validating: got error %v, want %q", op, err, want)
		}
	}
}

package namespaceexists_test

import (
	"context"
	"errors"
	"testing"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/namespaceexists"
	"binnacle/services/apiserver/internal/registry"
)

type namespaces struct{}

func (namespaces) Phase(_ context.Context, name string) (bool, bool, error) {
	if name == "unknown" {
		return false, false, errors.New("no answer")
	}
	return name == "there", false, nil
}

func TestNamespaceMustExist(t *testing.T) {
	for name, c := range map[string]struct {
		op                  admission.Operation
		resource, namespace string
		want                string
	}{
		"there":         {op: admission.Create, namespace: "there"},
		"absent":        {op: admission.Create, namespace: "absent", want: `namespaces "absent" not found`},
		"updated":       {op: admission.Update, namespace: "absent", want: `namespaces "absent" not found`},
		"deleted":       {op: admission.Delete, namespace: "absent", want: `namespaces "absent" not found`},
		"connected":     {op: admission.Connect, namespace: "absent"},
		"lookup fails":  {op: admission.Create, namespace: "unknown", want: "Internal error occurred: no answer"},
		"in none":       {op: admission.Create},
		"the namespace": {op: admission.Delete, namespace: "absent", resource: "namespaces"},
	} {
		if c.resource == "" {
			c.resource = "configmaps"
		}
		err := (&namespaceexists.Plugin{Namespaces: namespaces{}}).Validate(t.Context(), &admission.Request{
			Operation: c.op, Resource: &registry.Kind{Names: registry.Names{Resource: c.resource}}, Namespace: c.namespace, Name: "c",
		})
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

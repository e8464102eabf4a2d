package namespaceexists_test

import (
	"context"
	"errors"
	"testing"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/namespaceexists"
	"binnacle/services/apiserver/internal/registry"
)

// namespaces has the namespace existing. The lookup of unknown fails.
type namespaces struct{}

func (namespaces) Phase(_ context.Context, name string) (bool, bool, error) {
	if name == "unknown" {
		return false, false, errors.New("no answer")
	}
	return name == "existing", false, nil
}

// TestNamespaceMustExist checks that writes in a namespace require that it exists.
func TestNamespaceMustExist(t *testing.T) {
	for name, test := range map[string]struct {
		op        admission.Operation
		resource  string // default: configmaps
		namespace string
		want      string // error
	}{
		"create in an existing namespace": {op: admission.Create, namespace: "existing"},
		"create in an absent namespace":   {op: admission.Create, namespace: "absent", want: `namespaces "absent" not found`},
		"update in an absent namespace":   {op: admission.Update, namespace: "absent", want: `namespaces "absent" not found`},
		"delete in an absent namespace":   {op: admission.Delete, namespace: "absent", want: `namespaces "absent" not found`},
		"connect in an absent namespace":  {op: admission.Connect, namespace: "absent"},
		"namespace lookup fails":          {op: admission.Create, namespace: "unknown", want: "Internal error occurred: no answer"},
		"cluster-scoped object":           {op: admission.Create},
		"absent namespace itself":         {op: admission.Delete, namespace: "absent", resource: "namespaces"},
	} {
		if test.resource == "" {
			test.resource = "configmaps"
		}
		err := (&namespaceexists.Plugin{Namespaces: namespaces{}}).Validate(t.Context(), &admission.Request{
			Operation: test.op, Resource: &registry.Kind{Names: registry.Names{Resource: test.resource}}, Namespace: test.namespace, Name: "c",
		})
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%s: got error %v, want %q (empty: none)", name, err, test.want)
		}
	}
}

package namespaceautoprovision_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/namespaceautoprovision"
	"binnacle/services/apiserver/internal/registry"
)

// namespaces has the namespace "existing". Creating "taken" conflicts, creating "broken" fails, and
// looking up "unknown" fails.
type namespaces struct{ created []string }

func (n *namespaces) Phase(_ context.Context, name string) (exists, terminating bool, err error) {
	if name == "unknown" {
		return false, false, errors.New("lookup failed")
	}
	return name == "existing", false, nil
}

func (n *namespaces) Create(_ context.Context, name string) error {
	n.created = append(n.created, name)
	switch name {
	case "taken":
		return apierrors.NewAlreadyExists(corev1.Resource("namespaces"), name)
	case "broken":
		return errors.New("it breaks")
	}
	return nil
}

// TestNamespacesAreCreated checks that creating an object creates a missing namespace, and no other
// request does.
func TestNamespacesAreCreated(t *testing.T) {
	for name, test := range map[string]struct {
		op          admission.Operation // default: create
		resource    string              // default: configmaps
		namespace   string
		isDryRun    bool
		wantCreated bool
		want        string // error
	}{
		"existing":             {namespace: "existing"},
		"missing":              {namespace: "new", wantCreated: true},
		"created concurrently": {namespace: "taken", wantCreated: true},
		"create fails":         {namespace: "broken", wantCreated: true, want: `configmaps "c" is forbidden: it breaks`},
		"lookup fails":         {namespace: "unknown", want: `configmaps "c" is forbidden: lookup failed`},
		"dry run":              {namespace: "new", isDryRun: true},
		"update":               {namespace: "new", op: admission.Update},
		"in no namespace":      {},
		"resource namespaces":  {namespace: "new", resource: "namespaces"},
	} {
		if test.op == "" {
			test.op = admission.Create
		}
		if test.resource == "" {
			test.resource = "configmaps"
		}
		n := &namespaces{}
		err := (&namespaceautoprovision.Plugin{Namespaces: n}).Admit(t.Context(), &admission.Request{
			Operation: test.op,
			Resource:  &registry.Kind{Names: registry.Names{Resource: test.resource}},
			Namespace: test.namespace,
			Name:      "c",
			DryRun:    test.isDryRun,
		})
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%s: got error %v, want %q (empty: none)", name, err, test.want)
		}
		if (len(n.created) == 1 && n.created[0] == test.namespace) != test.wantCreated {
			t.Errorf("%s: got created namespaces %q, want namespace %q created: %t", name, n.created, test.namespace, test.wantCreated)
		}
	}
}

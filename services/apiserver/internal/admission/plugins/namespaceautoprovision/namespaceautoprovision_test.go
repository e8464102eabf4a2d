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

func TestNamespacesAreCreated(t *testing.T) {
	for name, c := range map[string]struct {
		op        admission.Operation
		resource  string
		namespace string
		dryRun    bool
		created   bool
		want      string
	}{
		"existing":             {namespace: "existing"},
		"missing":              {namespace: "new", created: true},
		"created concurrently": {namespace: "taken", created: true},
		"create fails":         {namespace: "broken", created: true, want: `configmaps "c" is forbidden: it breaks`},
		"lookup fails":         {namespace: "unknown", want: `configmaps "c" is forbidden: lookup failed`},
		"dry run":              {namespace: "new", dryRun: true},
		"update":               {namespace: "new", op: admission.Update},
		"in no namespace":      {},
		"resource namespaces":  {namespace: "new", resource: "namespaces"},
	} {
		if c.op == "" {
			c.op = admission.Create
		}
		if c.resource == "" {
			c.resource = "configmaps"
		}
		n := &namespaces{}
		err := (&namespaceautoprovision.Plugin{Namespaces: n}).Admit(t.Context(), &admission.Request{
			Operation: c.op,
			Resource:  &registry.Kind{Names: registry.Names{Resource: c.resource}},
			Namespace: c.namespace,
			Name:      "c",
			DryRun:    c.dryRun,
		})
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if (len(n.created) == 1 && n.created[0] == c.namespace) != c.created {
			t.Errorf("%s: created %v, want %v", name, n.created, c.created)
		}
	}
}

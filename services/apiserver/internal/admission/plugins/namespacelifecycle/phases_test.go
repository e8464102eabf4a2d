package namespacelifecycle_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/namespacelifecycle"
	"binnacle/services/apiserver/internal/registry"
)

// fakeNamespaces has the namespaces "active" and "ending". It counts lookups.
type fakeNamespaces struct{ lookups int }

func (n *fakeNamespaces) Phase(_ context.Context, name string) (exists, terminating bool, err error) {
	n.lookups++
	return name == "active" || name == "ending", name == "ending", nil
}

// TestWritesRequireExistingNamespace checks that creates and updates require an existing namespace,
// and that creates require one that is not terminating. Deletes, reviews and cluster-
// scoped requests cause no lookup.
func TestWritesRequireExistingNamespace(t *testing.T) {
	const (
		missing   = "404 not found"
		ending    = "403 because it is being terminated"
		protected = "403 this namespace may not be deleted"
	)
	for name, test := range map[string]struct {
		group, resource string
		op              admission.Operation
		namespace, name string
		want            string // code and a part of the message, or "" for no error
		noLookup        bool   // the namespace is not looked up
	}{
		"create in an active namespace":      {op: admission.Create, namespace: "active"},
		"create in a missing namespace":      {op: admission.Create, namespace: "gone", want: missing},
		"create in a terminating namespace":  {op: admission.Create, namespace: "ending", want: ending},
		"update in an active namespace":      {op: admission.Update, namespace: "active"},
		"update in a missing namespace":      {op: admission.Update, namespace: "gone", want: missing},
		"update in a terminating namespace":  {op: admission.Update, namespace: "ending"},
		"connect in a terminating namespace": {op: admission.Connect, namespace: "ending"},
		"delete in a missing namespace":      {op: admission.Delete, namespace: "gone", noLookup: true},
		"delete in a terminating namespace":  {op: admission.Delete, namespace: "ending", noLookup: true},
		"create of a cluster-scoped object":  {op: admission.Create, noLookup: true},
		"create of a review": {
			group: "authorization.k8s.io", resource: "localsubjectaccessreviews", op: admission.Create,
			namespace: "gone", noLookup: true,
		},
		"create of a namespace": {
			resource: "namespaces", op: admission.Create, namespace: "gone", name: "gone", noLookup: true,
		},
		"create of another group's namespace": {
			group: "x.y", resource: "namespaces", op: admission.Create, namespace: "gone", want: missing,
		},
		"delete of a namespace": {resource: "namespaces", op: admission.Delete, name: "active", noLookup: true},
		"delete of default": {
			resource: "namespaces", op: admission.Delete, name: "default", want: protected, noLookup: true,
		},
		"delete of kube-system": {
			resource: "namespaces", op: admission.Delete, name: "kube-system", want: protected, noLookup: true,
		},
		"delete of kube-public": {
			resource: "namespaces", op: admission.Delete, name: "kube-public", want: protected, noLookup: true,
		},
		"update of default":                      {resource: "namespaces", op: admission.Update, name: "default", noLookup: true},
		"delete of another object named default": {op: admission.Delete, namespace: "active", name: "default", noLookup: true},
		"delete of another group's namespace named default": {
			group: "x.y", resource: "namespaces", op: admission.Delete, name: "default", noLookup: true,
		},
	} {
		namespaces := &fakeNamespaces{}
		if test.resource == "" {
			test.resource = "configmaps"
		}
		err := (&namespacelifecycle.Plugin{Namespaces: namespaces}).Admit(t.Context(), &admission.Request{
			Operation: test.op, Namespace: test.namespace, Name: test.name,
			Resource: &registry.Kind{Names: registry.Names{Group: test.group, Resource: test.resource}},
		})
		wantCode, wantMessage, _ := strings.Cut(test.want, " ")
		var asWanted bool
		switch wantCode {
		case "404":
			asWanted = apierrors.IsNotFound(err)
		case "403":
			asWanted = apierrors.IsForbidden(err)
		default:
			asWanted = err == nil
		}
		if !asWanted || err != nil && !strings.Contains(err.Error(), wantMessage) {
			t.Errorf("%s: Admit = %v, want %q (empty: no error)", name, err, test.want)
		}
		if noLookup := namespaces.lookups == 0; noLookup != test.noLookup {
			t.Errorf("%s: got %d lookups of the namespace, want none: %t", name, namespaces.lookups, test.noLookup)
		}
		if hasCause := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause); hasCause != (test.want == ending) {
			t.Errorf("%s: error %v has the cause NamespaceTerminating: %t, want %t", name, err, hasCause, test.want == ending)
		}
	}
}

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

// phases has the namespaces "there" and "ending".
type phases struct{ lookups int }

func (p *phases) Phase(_ context.Context, name string) (exists, terminating bool, err error) {
	p.lookups++
	return name == "there" || name == "ending", name == "ending", nil
}

// TestWritesRequireNamespaceInPhase checks that writes require that the namespace exists. Creates
// require that it is not terminating.
func TestWritesRequireNamespaceInPhase(t *testing.T) {
	const none, ending, immortal = "404 not found", "403 because it is being terminated", "403 this namespace may not be deleted"
	for name, c := range map[string]struct {
		group, resource string
		op              admission.Operation
		namespace, name string
		want            string // code and part of the message
		noLookup        bool
	}{
		"new":                                               {op: admission.Create, namespace: "there"},
		"create in a missing namespace":                     {op: admission.Create, namespace: "gone", want: none},
		"create in a terminating namespace":                 {op: admission.Create, namespace: "ending", want: ending},
		"changed":                                           {op: admission.Update, namespace: "there"},
		"update in a missing namespace":                     {op: admission.Update, namespace: "gone", want: none},
		"update in a terminating namespace":                 {op: admission.Update, namespace: "ending"},
		"connect in a terminating namespace":                {op: admission.Connect, namespace: "ending"},
		"delete in a missing namespace":                     {op: admission.Delete, namespace: "gone", noLookup: true},
		"delete in a terminating namespace":                 {op: admission.Delete, namespace: "ending", noLookup: true},
		"cluster-scoped":                                    {op: admission.Create, noLookup: true},
		"a review":                                          {group: "authorization.k8s.io", resource: "localsubjectaccessreviews", op: admission.Create, namespace: "gone", noLookup: true},
		"a namespace":                                       {resource: "namespaces", op: admission.Create, namespace: "gone", name: "gone", noLookup: true},
		"a namespace of another group":                      {group: "x.y", resource: "namespaces", op: admission.Create, namespace: "gone", want: none},
		"delete of a namespace":                             {resource: "namespaces", op: admission.Delete, name: "there", noLookup: true},
		"delete of default":                                 {resource: "namespaces", op: admission.Delete, name: "default", want: immortal, noLookup: true},
		"kube-system is deleted":                            {resource: "namespaces", op: admission.Delete, name: "kube-system", want: immortal, noLookup: true},
		"kube-public is deleted":                            {resource: "namespaces", op: admission.Delete, name: "kube-public", want: immortal, noLookup: true},
		"update of default":                                 {resource: "namespaces", op: admission.Update, name: "default", noLookup: true},
		"delete of another object named default":            {op: admission.Delete, namespace: "there", name: "default", noLookup: true},
		"delete of another group's namespace named default": {group: "x.y", resource: "namespaces", op: admission.Delete, name: "default", noLookup: true},
	} {
		n := &phases{}
		if c.resource == "" {
			c.resource = "configmaps"
		}
		err := (&namespacelifecycle.Plugin{Namespaces: n}).Admit(t.Context(), &admission.Request{
			Operation: c.op, Namespace: c.namespace, Name: c.name, Resource: &registry.Kind{Names: registry.Names{Group: c.group, Resource: c.resource}},
		})
		code, text, _ := strings.Cut(c.want, " ")
		good := err == nil && c.want == "" || err != nil && c.want != "" && strings.Contains(err.Error(), text) &&
			(code == "404" && apierrors.IsNotFound(err) || code == "403" && apierrors.IsForbidden(err))
		if !good || n.lookups == 0 != c.noLookup {
			t.Errorf("%s: got %v after %d lookups, want %q", name, err, n.lookups, c.want)
		}
		if hasCause := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause); hasCause != (c.want == ending) {
			t.Errorf("%s: got cause NamespaceTerminating: %t, want %t", name, hasCause, c.want == ending)
		}
	}
}

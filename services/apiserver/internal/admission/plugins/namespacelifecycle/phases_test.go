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

// phases are namespaces by their names: "there", "ending"; others do not exist.
type phases struct{ asked int }

func (p *phases) Phase(_ context.Context, name string) (exists, terminating bool, err error) {
	p.asked++
	return name == "there" || name == "ending", name == "ending", nil
}

// TestPhases: what is written into a namespace needs one, and what is new one that does not end.
func TestPhases(t *testing.T) {
	const none, ending, immortal = "404 not found", "403 because it is being terminated", "403 this namespace may not be deleted"
	for name, c := range map[string]struct {
		group, resource string
		op              admission.Operation
		namespace, name string
		want            string // code and a part of the text
		unasked         bool
	}{
		"new":                             {op: admission.Create, namespace: "there"},
		"new where there is none":         {op: admission.Create, namespace: "gone", want: none},
		"new where it ends":               {op: admission.Create, namespace: "ending", want: ending},
		"changed":                         {op: admission.Update, namespace: "there"},
		"changed where there is none":     {op: admission.Update, namespace: "gone", want: none},
		"changed where it ends":           {op: admission.Update, namespace: "ending"},
		"connected where it ends":         {op: admission.Connect, namespace: "ending"},
		"deleted where there is none":     {op: admission.Delete, namespace: "gone", unasked: true},
		"deleted where it ends":           {op: admission.Delete, namespace: "ending", unasked: true},
		"in no namespace":                 {op: admission.Create, unasked: true},
		"a review":                        {group: "authorization.k8s.io", resource: "localsubjectaccessreviews", op: admission.Create, namespace: "gone", unasked: true},
		"a namespace":                     {resource: "namespaces", op: admission.Create, namespace: "gone", name: "gone", unasked: true},
		"a namespace of another group":    {group: "x.y", resource: "namespaces", op: admission.Create, namespace: "gone", want: none},
		"a namespace is deleted":          {resource: "namespaces", op: admission.Delete, name: "there", unasked: true},
		"default is deleted":              {resource: "namespaces", op: admission.Delete, name: "default", want: immortal, unasked: true},
		"kube-system is deleted":          {resource: "namespaces", op: admission.Delete, name: "kube-system", want: immortal, unasked: true},
		"kube-public is deleted":          {resource: "namespaces", op: admission.Delete, name: "kube-public", want: immortal, unasked: true},
		"default is changed":              {resource: "namespaces", op: admission.Update, name: "default", unasked: true},
		"what is called so is deleted":    {op: admission.Delete, namespace: "there", name: "default", unasked: true},
		"one of another group, called so": {group: "x.y", resource: "namespaces", op: admission.Delete, name: "default", unasked: true},
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
		if !good || n.asked == 0 != c.unasked {
			t.Errorf("%s: %v, looked %d times; want %q", name, err, n.asked, c.want)
		}
		if told := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause); told != (c.want == ending) {
			t.Errorf("%s: that it ends is told: %t", name, told)
		}
	}
}

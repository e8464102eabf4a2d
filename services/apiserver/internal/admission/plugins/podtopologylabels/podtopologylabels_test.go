package podtopologylabels_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/podtopologylabels"
	"binnacle/services/apiserver/internal/registry"
)

// nodes has the node n with topology labels. The lookup of broken fails.
type nodes struct{}

func (nodes) Node(_ context.Context, name string) (*corev1.Node, error) {
	switch name {
	case "n":
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			"topology.k8s.io/zone": "z", "topology.k8s.io/region": "r", "topology.kubernetes.io/zone": "other", "a": "b",
		}}}, nil
	case "broken":
		return nil, errors.New("no answer")
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// TestTopologyLabelsAreCopied checks that a binding, and a pod that is created on a node, get the
// topology labels of the node that they lack.
func TestTopologyLabelsAreCopied(t *testing.T) {
	binding := func(kind, node string, labels map[string]string) runtime.Object {
		return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Target: corev1.ObjectReference{Kind: kind, Name: node}}
	}
	pod := func(node string) runtime.Object { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}} }
	all := map[string]string{"topology.k8s.io/zone": "z", "topology.k8s.io/region": "r"}
	for name, test := range map[string]struct {
		isDisabled  bool
		op          admission.Operation // default: create
		subresource string
		obj         runtime.Object
		want        map[string]string // labels
		wantErr     string
	}{
		"binding": {subresource: "binding", obj: binding("Node", "n", nil), want: all},
		"binding with a zone": {
			subresource: "binding", obj: binding("Node", "n", map[string]string{"topology.k8s.io/zone": "mine"}),
			want: map[string]string{"topology.k8s.io/zone": "mine", "topology.k8s.io/region": "r"},
		},
		"binding, feature gate is off": {isDisabled: true, subresource: "binding", obj: binding("Node", "n", nil)},
		"binding to another kind":      {subresource: "binding", obj: binding("", "n", nil)},
		"binding to an absent node":    {subresource: "binding", obj: binding("Node", "absent", nil)},
		"node lookup fails":            {subresource: "binding", obj: binding("Node", "broken", nil), wantErr: "no answer"},
		"create of a pod on a node":    {obj: pod("n"), want: all},
		"pod without a node":           {obj: pod("")},
		"update of a pod":              {op: admission.Update, obj: pod("n")},
		"other subresource":            {subresource: "status", obj: pod("n")},
	} {
		if test.op == "" {
			test.op = admission.Create
		}
		err := (&podtopologylabels.Plugin{Nodes: nodes{}, Enabled: !test.isDisabled}).Admit(t.Context(), &admission.Request{
			Operation: test.op, Subresource: test.subresource, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Object: test.obj,
		})
		if err == nil && test.wantErr != "" || err != nil && err.Error() != test.wantErr {
			t.Errorf("%s: got error %v, want %q (empty: none)", name, err, test.wantErr)
		}
		m, err := meta.Accessor(test.obj)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(m.GetLabels()), fmt.Sprint(test.want); got != want {
			t.Errorf("%s: got labels %s, want %s", name, got, want)
		}
	}
}

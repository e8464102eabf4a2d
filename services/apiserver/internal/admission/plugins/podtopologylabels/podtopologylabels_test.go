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

// TestTopologyLabelsAreCopied copies the topology labels of the node to bindings and pods.
func TestTopologyLabelsAreCopied(t *testing.T) {
	binding := func(kind, node string, labels map[string]string) runtime.Object {
		return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Target: corev1.ObjectReference{Kind: kind, Name: node}}
	}
	pod := func(node string) runtime.Object { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}} }
	all := map[string]string{"topology.k8s.io/zone": "z", "topology.k8s.io/region": "r"}
	for name, c := range map[string]struct {
		off  bool
		op   admission.Operation
		sub  string
		o    runtime.Object
		want map[string]string
		err  string
	}{
		"binding": {sub: "binding", o: binding("Node", "n", nil), want: all},
		"binding with some": {
			sub: "binding", o: binding("Node", "n", map[string]string{"topology.k8s.io/zone": "mine"}),
			want: map[string]string{"topology.k8s.io/zone": "mine", "topology.k8s.io/region": "r"},
		},
		"binding, gate off":  {off: true, sub: "binding", o: binding("Node", "n", nil)},
		"to something else":  {sub: "binding", o: binding("", "n", nil)},
		"to an absent node":  {sub: "binding", o: binding("Node", "absent", nil)},
		"lookup fails":       {sub: "binding", o: binding("Node", "broken", nil), err: "no answer"},
		"pod on a node":      {o: pod("n"), want: all},
		"pod on none":        {o: pod("")},
		"pod that is there":  {op: admission.Update, o: pod("n")},
		"another sub-object": {sub: "status", o: pod("n")},
	} {
		if c.op == "" {
			c.op = admission.Create
		}
		err := (&podtopologylabels.Plugin{Nodes: nodes{}, Enabled: !c.off}).Admit(t.Context(), &admission.Request{
			Operation: c.op, Subresource: c.sub, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Object: c.o,
		})
		if err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: %v", name, err)
		}
		m, err := meta.Accessor(c.o)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(m.GetLabels()), fmt.Sprint(c.want); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

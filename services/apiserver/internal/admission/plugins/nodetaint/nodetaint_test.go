package nodetaint_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/nodetaint"
)

// TestNewNodesAreTainted checks that a created node gets the taint not-ready:NoSchedule once, after its
// own taints.
func TestNewNodesAreTainted(t *testing.T) {
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "own", Effect: corev1.TaintEffectNoExecute}
	evicting := corev1.Taint{Key: notReady.Key, Effect: corev1.TaintEffectNoExecute}
	for _, test := range []struct {
		op          admission.Operation
		subresource string
		taints      []corev1.Taint
		want        []corev1.Taint
	}{
		{op: admission.Create, subresource: "", taints: nil, want: []corev1.Taint{notReady}},
		{op: admission.Create, subresource: "", taints: []corev1.Taint{own}, want: []corev1.Taint{own, notReady}},
		{op: admission.Create, subresource: "", taints: []corev1.Taint{notReady, own}, want: []corev1.Taint{notReady, own}},
		{op: admission.Create, subresource: "", taints: []corev1.Taint{evicting}, want: []corev1.Taint{evicting, notReady}},
		{op: admission.Create, subresource: "status", taints: nil, want: nil},
		{op: admission.Update, subresource: "", taints: nil, want: nil},
	} {
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: test.taints}}
		if err := (nodetaint.Plugin{}).Admit(t.Context(), &admission.Request{Operation: test.op, Subresource: test.subresource, Object: n}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(n.Spec.Taints, test.want) {
			t.Errorf("%s of a node, subresource %q, taints %v: got taints %v, want %v", test.op, test.subresource, test.taints, n.Spec.Taints, test.want)
		}
	}
	for _, other := range []runtime.Object{nil, &corev1.Pod{}} {
		if err := (nodetaint.Plugin{}).Admit(t.Context(), &admission.Request{Operation: admission.Create, Object: other}); err != nil {
			t.Errorf("create of %T: got error %v, want none", other, err)
		}
	}
}

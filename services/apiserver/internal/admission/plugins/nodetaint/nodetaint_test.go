package nodetaint_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/nodetaint"
)

// TestNewNodesAreTainted checks that a created node gets the taint not-ready:NoSchedule once, after
// its own taints.
func TestNewNodesAreTainted(t *testing.T) {
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "own", Effect: corev1.TaintEffectNoExecute}
	evicting := corev1.Taint{Key: notReady.Key, Effect: corev1.TaintEffectNoExecute}
	for name, test := range map[string]struct {
		op          admission.Operation
		subresource string
		taints      []corev1.Taint
		want        []corev1.Taint
	}{
		"create without taints":       {op: admission.Create, taints: nil, want: []corev1.Taint{notReady}},
		"create with another taint":   {op: admission.Create, taints: []corev1.Taint{own}, want: []corev1.Taint{own, notReady}},
		"create with the taint":       {op: admission.Create, taints: []corev1.Taint{notReady, own}, want: []corev1.Taint{notReady, own}},
		"create with the taint's key": {op: admission.Create, taints: []corev1.Taint{evicting}, want: []corev1.Taint{evicting, notReady}},
		"create of a subresource":     {op: admission.Create, subresource: "status", taints: nil, want: nil},
		"update":                      {op: admission.Update, taints: nil, want: nil},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: test.taints}}
		if err := (nodetaint.Plugin{}).Admit(t.Context(), &admission.Request{Operation: test.op, Subresource: test.subresource, Object: node}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(node.Spec.Taints, test.want) {
			t.Errorf("%s: got taints %v, want %v", name, node.Spec.Taints, test.want)
		}
	}
	for _, other := range []runtime.Object{nil, &corev1.Pod{}} {
		if err := (nodetaint.Plugin{}).Admit(t.Context(), &admission.Request{Operation: admission.Create, Object: other}); err != nil {
			t.Errorf("create of %T: got error %v, want none", other, err)
		}
	}
}

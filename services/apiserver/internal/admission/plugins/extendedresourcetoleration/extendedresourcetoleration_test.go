package extendedresourcetoleration_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/extendedresourcetoleration"
	"binnacle/services/apiserver/internal/registry"
)

// container returns a container that requests one of each resource.
func container(names ...corev1.ResourceName) corev1.Container {
	c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
	for _, n := range names {
		c.Resources.Requests[n] = resource.MustParse("1")
	}
	return c
}

// TestExtendedResourcesAreTolerated checks that a pod gets a toleration for each extended resource
// that it requests, sorted by name.
func TestExtendedResourcesAreTolerated(t *testing.T) {
	seconds := int64(5)
	gpu := corev1.Toleration{Key: "ex.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	timed := gpu
	timed.TolerationSeconds = &seconds
	other := corev1.Toleration{
		Key:      "ex.com/gpu",
		Operator: corev1.TolerationOpEqual,
		Value:    "x",
		Effect:   corev1.TaintEffectNoSchedule,
	}
	for name, test := range map[string]struct {
		spec        corev1.PodSpec
		op          admission.Operation // default: create
		subresource string
		want        []corev1.Toleration
	}{
		"native resources only": {spec: corev1.PodSpec{Containers: []corev1.Container{container("cpu", "hugepages-2Mi", "x.kubernetes.io/a", "requests.a/b")}}},
		"one extended resource": {spec: corev1.PodSpec{Containers: []corev1.Container{container("ex.com/gpu", "cpu")}}, want: []corev1.Toleration{gpu}},
		"two extended resources": {
			spec: corev1.PodSpec{
				Containers:     []corev1.Container{container("ex.com/gpu")},
				InitContainers: []corev1.Container{container("a.com/x", "ex.com/gpu")},
			},
			want: []corev1.Toleration{{Key: "a.com/x", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, gpu},
		},
		"toleration exists": {
			spec: corev1.PodSpec{Containers: []corev1.Container{container("ex.com/gpu")}, Tolerations: []corev1.Toleration{gpu}},
			want: []corev1.Toleration{gpu},
		},
		"toleration for a time is replaced": {
			spec: corev1.PodSpec{Containers: []corev1.Container{container("ex.com/gpu")}, Tolerations: []corev1.Toleration{timed}},
			op:   admission.Update, want: []corev1.Toleration{gpu},
		},
		"toleration of one value does not suffice": {
			spec: corev1.PodSpec{Containers: []corev1.Container{container("ex.com/gpu")}, Tolerations: []corev1.Toleration{other}},
			want: []corev1.Toleration{other, gpu},
		},
		"status update": {spec: corev1.PodSpec{Containers: []corev1.Container{container("ex.com/gpu")}}, subresource: "status"},
		"delete":        {spec: corev1.PodSpec{Containers: []corev1.Container{container("ex.com/gpu")}}, op: admission.Delete},
	} {
		if test.op == "" {
			test.op = admission.Create
		}
		pod := &corev1.Pod{Spec: test.spec}
		if err := (extendedresourcetoleration.Plugin{}).Admit(t.Context(), &admission.Request{
			Operation: test.op, Subresource: test.subresource, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Object: pod,
		}); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(pod.Spec.Tolerations), fmt.Sprint(test.want); got != want {
			t.Errorf("%s: got tolerations %s, want %s", name, got, want)
		}
	}
}

package alwayspullimages_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/alwayspullimages"
	"binnacle/services/apiserver/internal/registry"
)

func podWithNewImages(images ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name = "a"
	for i, image := range images {
		c := corev1.Container{Image: image, ImagePullPolicy: corev1.PullNever}
		switch i {
		case 0:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case 1:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		default:
			pod.Spec.EphemeralContainers = append(
				pod.Spec.EphemeralContainers,
				corev1.EphemeralContainer{
					EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: image, ImagePullPolicy: corev1.PullNever},
				},
			)
		}
	}
	return pod
}

func request(op admission.Operation, sub string, o, old runtime.Object) *admission.Request {
	return &admission.Request{
		Operation: op, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Subresource: sub,
		Name: "a", Object: o, OldObject: old,
	}
}

func TestPullPolicyBecomesAlways(t *testing.T) {
	for name, c := range map[string]struct {
		op   admission.Operation
		sub  string
		old  runtime.Object
		pull bool
	}{
		"new":                 {op: admission.Create, pull: true},
		"another image":       {op: admission.Update, old: podWithNewImages("i", "x", "e"), pull: true},
		"the same images":     {op: admission.Update, old: podWithNewImages("c", "e", "i")},
		"sub-resource":        {op: admission.Update, sub: "status", old: podWithNewImages()},
		"old of another kind": {op: admission.Update, old: &corev1.Node{}, pull: true},
	} {
		p := podWithNewImages("i", "c", "e")
		r := request(c.op, c.sub, p, c.old)
		rejected := alwayspullimages.Plugin{}.Validate(t.Context(), r)
		if err := (alwayspullimages.Plugin{}).Admit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		want := corev1.PullNever
		if c.pull {
			want = corev1.PullAlways
		}
		for _, got := range []corev1.PullPolicy{p.Spec.InitContainers[0].ImagePullPolicy, p.Spec.Containers[0].ImagePullPolicy, p.Spec.EphemeralContainers[0].ImagePullPolicy} {
			if got != want {
				t.Errorf("%s: got policy %s, want %s", name, got, want)
			}
		}
		if (rejected != nil) != c.pull {
			t.Errorf("%s, validated before mutation: got %v, want %v", name, rejected, c.pull)
		}
		if err := (alwayspullimages.Plugin{}).Validate(t.Context(), r); err != nil {
			t.Errorf("%s, validated after mutation: got %v, want no error", name, err)
		}
	}
}

func TestErrorNamesTheField(t *testing.T) {
	p := podWithNewImages("i", "c")
	p.Spec.InitContainers[0].ImagePullPolicy = corev1.PullAlways
	err := alwayspullimages.Plugin{}.Validate(t.Context(), request(admission.Create, "", p, nil))
	want := `pods "a" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want an error, %v", err, want)
	}
}

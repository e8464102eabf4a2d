package alwayspullimages_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/alwayspullimages"
	"binnacle/services/apiserver/internal/registry"
)

// podWithImages returns a pod whose containers have the pull policy Never. The first image becomes an
// init container, the second one a container, and each further image an ephemeral container.
func podWithImages(images ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name = "a"
	for i, image := range images {
		container := corev1.Container{Image: image, ImagePullPolicy: corev1.PullNever}
		switch i {
		case 0:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		case 1:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
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

// request returns a request for the pod a, or for one of its subresources.
func request(op admission.Operation, subresource string, pod, old runtime.Object) *admission.Request {
	return &admission.Request{
		Operation: op, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Subresource: subresource,
		Name: "a", Object: pod, OldObject: old,
	}
}

// TestPullPolicyBecomesAlways checks that Admit sets the pull policy Always in a new pod and in a pod
// that gets a new image. Validate rejects such a pod with another policy.
func TestPullPolicyBecomesAlways(t *testing.T) {
	for name, test := range map[string]struct {
		op          admission.Operation
		subresource string
		old         runtime.Object
		wantAlways  bool
	}{
		"create":                      {op: admission.Create, wantAlways: true},
		"update with another image":   {op: admission.Update, old: podWithImages("i", "x", "e"), wantAlways: true},
		"update with the same images": {op: admission.Update, old: podWithImages("c", "e", "i")},
		"update of a subresource":     {op: admission.Update, subresource: "status", old: podWithImages()},
		"old object of another kind":  {op: admission.Update, old: &corev1.Node{}, wantAlways: true},
	} {
		pod := podWithImages("i", "c", "e")
		req := request(test.op, test.subresource, pod, test.old)
		rejected := alwayspullimages.Plugin{}.Validate(t.Context(), req)
		if err := (alwayspullimages.Plugin{}).Admit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		want := corev1.PullNever
		if test.wantAlways {
			want = corev1.PullAlways
		}
		for container, got := range map[string]corev1.PullPolicy{
			"init":      pod.Spec.InitContainers[0].ImagePullPolicy,
			"regular":   pod.Spec.Containers[0].ImagePullPolicy,
			"ephemeral": pod.Spec.EphemeralContainers[0].ImagePullPolicy,
		} {
			if got != want {
				t.Errorf("%s, %s container: got policy %s, want %s", name, container, got, want)
			}
		}
		if (rejected != nil) != test.wantAlways {
			t.Errorf("%s, Validate before Admit: got error %v, want an error: %t", name, rejected, test.wantAlways)
		}
		if err := (alwayspullimages.Plugin{}).Validate(t.Context(), req); err != nil {
			t.Errorf("%s, Validate after Admit: got error %v, want none", name, err)
		}
	}
}

// TestErrorNamesTheField checks that the error names the field of the first wrong container.
func TestErrorNamesTheField(t *testing.T) {
	p := podWithImages("i", "c")
	p.Spec.InitContainers[0].ImagePullPolicy = corev1.PullAlways
	err := alwayspullimages.Plugin{}.Validate(t.Context(), request(admission.Create, "", p, nil))
	want := `pods "a" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always"`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}

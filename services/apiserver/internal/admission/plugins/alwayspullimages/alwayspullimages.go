// Package alwayspullimages makes the kubelet pull the images of pods before each start, so that the
// registry checks credentials every time. Otherwise any pod may use an image that is already on its
// node.
package alwayspullimages

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/status"
)

// Name is the name of the plugin in flags and configuration.
const Name = "AlwaysPullImages"

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct{}

// Admit sets the pull policy of new images.
func (Plugin) Admit(_ context.Context, r *admission.Request) error {
	eachContainer(podWithNewImages(r), func(_ *field.Path, _ string, policy *corev1.PullPolicy) { *policy = corev1.PullAlways })
	return nil
}

// Validate rejects a pod whose pull policy a later plugin has changed.
func (Plugin) Validate(_ context.Context, req *admission.Request) error {
	var errs field.ErrorList
	eachContainer(podWithNewImages(req), func(path *field.Path, _ string, policy *corev1.PullPolicy) {
		if *policy != corev1.PullAlways {
			errs = append(errs, field.NotSupported(path.Child("imagePullPolicy"), *policy, []string{string(corev1.PullAlways)}))
		}
	})
	if len(errs) == 0 {
		return nil
	}
	return req.Forbidden(status.Aggregated(errs))
}

// podWithNewImages returns the pod of a request that introduces images, or nil.
func podWithNewImages(req *admission.Request) *corev1.Pod {
	pod, ok := req.Object.(*corev1.Pod)
	if !ok || !req.IsObject("", "pods") {
		return nil
	}
	switch req.Operation {
	case admission.Create:
		return pod
	case admission.Update:
		old, ok := req.OldObject.(*corev1.Pod)
		if !ok || addsImages(pod, old) {
			return pod
		}
	}
	return nil
}

// addsImages reports whether a pod has an image that the old pod does not have.
func addsImages(pod, old *corev1.Pod) bool {
	oldImages := map[string]bool{}
	eachContainer(old, func(_ *field.Path, image string, _ *corev1.PullPolicy) { oldImages[image] = true })
	adds := false
	eachContainer(pod, func(_ *field.Path, image string, _ *corev1.PullPolicy) { adds = adds || !oldImages[image] })
	return adds
}

// eachContainer calls visit with the path, image and pull policy of each container of a pod.
func eachContainer(pod *corev1.Pod, visit func(at *field.Path, image string, policy *corev1.PullPolicy)) {
	if pod == nil {
		return
	}
	spec := field.NewPath("spec")
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		visit(spec.Child("initContainers").Index(i), container.Image, &container.ImagePullPolicy)
	}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		visit(spec.Child("containers").Index(i), container.Image, &container.ImagePullPolicy)
	}
	for i := range pod.Spec.EphemeralContainers {
		container := &pod.Spec.EphemeralContainers[i]
		visit(spec.Child("ephemeralContainers").Index(i), container.Image, &container.ImagePullPolicy)
	}
}

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
	each(pod(r), func(_ *field.Path, _ string, policy *corev1.PullPolicy) { *policy = corev1.PullAlways })
	return nil
}

// Validate rejects a pod whose pull policy a later plugin has changed.
func (Plugin) Validate(_ context.Context, r *admission.Request) error {
	var errs field.ErrorList
	each(pod(r), func(at *field.Path, _ string, policy *corev1.PullPolicy) {
		if *policy != corev1.PullAlways {
			errs = append(errs, field.NotSupported(at.Child("imagePullPolicy"), *policy, []string{string(corev1.PullAlways)}))
		}
	})
	if len(errs) == 0 {
		return nil
	}
	return r.Forbidden(status.Aggregated(errs))
}

// pod returns the pod of a request that introduces images, or nil.
func pod(r *admission.Request) *corev1.Pod {
	p, ok := r.Object.(*corev1.Pod)
	if !ok || !r.IsObject("", "pods") {
		return nil
	}
	switch r.Operation {
	case admission.Create:
		return p
	case admission.Update:
		old, ok := r.OldObject.(*corev1.Pod)
		if !ok || addsImages(p, old) {
			return p
		}
	}
	return nil
}

func addsImages(p, old *corev1.Pod) bool {
	had := map[string]bool{}
	each(old, func(_ *field.Path, image string, _ *corev1.PullPolicy) { had[image] = true })
	brings := false
	each(p, func(_ *field.Path, image string, _ *corev1.PullPolicy) { brings = brings || !had[image] })
	return brings
}

// each calls see for the images of all containers of a pod.
func each(p *corev1.Pod, see func(at *field.Path, image string, policy *corev1.PullPolicy)) {
	if p == nil {
		return
	}
	spec := field.NewPath("spec")
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		see(spec.Child("initContainers").Index(i), c.Image, &c.ImagePullPolicy)
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		see(spec.Child("containers").Index(i), c.Image, &c.ImagePullPolicy)
	}
	for i := range p.Spec.EphemeralContainers {
		c := &p.Spec.EphemeralContainers[i]
		see(spec.Child("ephemeralContainers").Index(i), c.Image, &c.ImagePullPolicy)
	}
}

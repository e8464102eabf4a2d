// Package runtimeclass applies a pod's runtime class: the overhead of the runtime, and the nodes
// that have it.
package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/tolerations"
)

// Name is the name of the plugin in flags and configuration.
const Name = "RuntimeClass"

// Classes looks up runtime classes.
type Classes interface {
	Get(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
}

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct{ Classes Classes }

var (
	errOverheadDiffers      = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	errOverheadWithoutClass = errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
)

// Admit sets overhead, node selector and tolerations of a new pod.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	pod, class, err := p.podAndClass(ctx, req)
	if err != nil || class == nil {
		return err
	}
	if err := setOverhead(req, pod, class); err != nil {
		return err
	}
	return addScheduling(req, pod, class)
}

// Validate rejects a pod whose overhead differs from the overhead of its class.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	pod, class, err := p.podAndClass(ctx, req)
	switch {
	case err != nil || pod == nil:
		return err
	case class == nil || class.Overhead == nil:
		if len(pod.Spec.Overhead) > 0 {
			return req.Forbidden(errOverheadWithoutClass)
		}
	case !semantic.Equal(class.Overhead.PodFixed, pod.Spec.Overhead):
		return req.Forbidden(errOverheadDiffers)
	}
	return nil
}

// podAndClass returns the pod of a creation and its runtime class. The class is nil if the pod
// names none. Both are nil for any other request.
func (p *Plugin) podAndClass(ctx context.Context, req *admission.Request) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	pod, ok := req.Object.(*corev1.Pod)
	if !ok || req.Operation != admission.Create || !req.IsObject("", "pods") {
		return nil, nil, nil
	}
	if pod.Spec.RuntimeClassName == nil {
		return pod, nil, nil
	}
	class, err := p.Classes.Get(ctx, *pod.Spec.RuntimeClassName)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, req.Forbiddenf("pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName)
	case err != nil:
		return nil, nil, fmt.Errorf("runtime class %q: %w", *pod.Spec.RuntimeClassName, err)
	}
	return pod, class, nil
}

// setOverhead sets the overhead of a pod. It rejects a pod that already has another overhead.
func setOverhead(req *admission.Request, pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	if class.Overhead == nil {
		return nil
	}
	if len(pod.Spec.Overhead) > 0 && !semantic.Equal(class.Overhead.PodFixed, pod.Spec.Overhead) {
		return req.Forbidden(errOverheadDiffers)
	}
	pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	return nil
}

// addScheduling adds the node selector and the tolerations of a runtime class to a pod. It rejects
// a pod whose node selector conflicts with the one of the class.
func addScheduling(req *admission.Request, pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	scheduling := class.Scheduling
	if scheduling == nil {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(scheduling.NodeSelector)) {
		if existing, ok := pod.Spec.NodeSelector[k]; ok && existing != scheduling.NodeSelector[k] {
			return req.Forbiddenf(
				"conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s",
				k,
				scheduling.NodeSelector[k],
				k,
				existing,
			)
		}
	}
	if len(scheduling.NodeSelector) > 0 {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		maps.Copy(pod.Spec.NodeSelector, scheduling.NodeSelector)
	}
	if len(scheduling.Tolerations) > 0 {
		pod.Spec.Tolerations = tolerations.Merge(pod.Spec.Tolerations, scheduling.Tolerations)
	}
	return nil
}

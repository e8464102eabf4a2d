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
	errOverheadDiffers = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	errOverheadAlone   = errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
)

// Admit sets overhead, node selector and tolerations of a new pod.
func (p *Plugin) Admit(ctx context.Context, r *admission.Request) error {
	pod, class, err := p.find(ctx, r)
	if err != nil || class == nil {
		return err
	}
	if err := overhead(r, pod, class); err != nil {
		return err
	}
	return schedule(r, pod, class)
}

// Validate rejects an overhead that differs from that of the class.
func (p *Plugin) Validate(ctx context.Context, r *admission.Request) error {
	pod, class, err := p.find(ctx, r)
	switch {
	case err != nil || pod == nil:
		return err
	case class == nil || class.Overhead == nil:
		if len(pod.Spec.Overhead) > 0 {
			return r.Forbidden(errOverheadAlone)
		}
	case !semantic.Equal(class.Overhead.PodFixed, pod.Spec.Overhead):
		return r.Forbidden(errOverheadDiffers)
	}
	return nil
}

// find returns a new pod and its runtime class. It returns nil for a missing one.
func (p *Plugin) find(ctx context.Context, r *admission.Request) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || r.Operation != admission.Create || !r.IsObject("", "pods") {
		return nil, nil, nil
	}
	if pod.Spec.RuntimeClassName == nil {
		return pod, nil, nil
	}
	class, err := p.Classes.Get(ctx, *pod.Spec.RuntimeClassName)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, r.Forbiddenf("pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName)
	case err != nil:
		return nil, nil, fmt.Errorf("runtime class %q: %w", *pod.Spec.RuntimeClassName, err)
	}
	return pod, class, nil
}

// overhead sets the overhead of a pod. It rejects another overhead.
func overhead(r *admission.Request, pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	if class.Overhead == nil {
		return nil
	}
	if len(pod.Spec.Overhead) > 0 && !semantic.Equal(class.Overhead.PodFixed, pod.Spec.Overhead) {
		return r.Forbidden(errOverheadDiffers)
	}
	pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	return nil
}

// schedule adds the node selector and the tolerations of a runtime class to a pod. It rejects a
// conflicting node selector.
func schedule(r *admission.Request, pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	s := class.Scheduling
	if s == nil {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if existing, ok := pod.Spec.NodeSelector[k]; ok && existing != s.NodeSelector[k] {
			return r.Forbiddenf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", k, s.NodeSelector[k], k, existing)
		}
	}
	if len(s.NodeSelector) > 0 {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		maps.Copy(pod.Spec.NodeSelector, s.NodeSelector)
	}
	if len(s.Tolerations) > 0 {
		pod.Spec.Tolerations = tolerations.Merge(pod.Spec.Tolerations, s.Tolerations)
	}
	return nil
}

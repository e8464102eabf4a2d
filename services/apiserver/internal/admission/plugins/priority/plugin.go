// Package priority sets the priority of pods from their priority classes, and ensures that only one
// class is the default.
package priority

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "Priority"

// Classes looks up priority classes.
type Classes interface {
	// Get returns a class, or a NotFound error.
	Get(ctx context.Context, name string) (*schedulingv1.PriorityClass, error)
	// Default returns the class of pods without a class, or nil if there is none.
	Default(ctx context.Context) (*schedulingv1.PriorityClass, error)
}

// Default returns the default class among all classes, or nil if no class is marked as default. If
// several classes are marked, the one with the lowest value is the default.
func Default(all []*schedulingv1.PriorityClass) (found *schedulingv1.PriorityClass) {
	for _, class := range all {
		if class.GlobalDefault && (found == nil || class.Value < found.Value) {
			found = class
		}
	}
	return found
}

// Plugin implements admission.Mutator for pods and admission.Validator for priority classes.
type Plugin struct{ Classes Classes }

// Admit sets the priority of a new pod, and keeps the priority of an existing one.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	pod, ok := req.Object.(*corev1.Pod)
	if !ok || !req.IsObject("", "pods") {
		return nil
	}
	if req.Operation == admission.Create {
		return p.setPriority(ctx, req, pod)
	}
	if old, ok := req.OldObject.(*corev1.Pod); ok && req.Operation == admission.Update {
		if pod.Spec.Priority == nil {
			pod.Spec.Priority = old.Spec.Priority
		}
		if pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
		}
	}
	return nil
}

// resolvedClass is the priority of a pod. name is empty if there is no priority class. policy is
// nil if the class does not set it.
type resolvedClass struct {
	name   string
	value  int32
	policy *corev1.PreemptionPolicy
}

// classOf returns the priority class that a pod names, or else the default class. If there is no
// default class, the pod has the priority 0.
func (p *Plugin) classOf(ctx context.Context, req *admission.Request, pod *corev1.Pod) (resolvedClass, error) {
	if name := pod.Spec.PriorityClassName; name != "" {
		priorityClass, err := p.Classes.Get(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			return resolvedClass{}, req.Forbiddenf("no PriorityClass with name %v was found", name)
		case err != nil:
			return resolvedClass{}, fmt.Errorf("failed to get PriorityClass with name %s: %w", name, err)
		}
		return resolvedClass{name: name, value: priorityClass.Value, policy: priorityClass.PreemptionPolicy}, nil
	}
	priorityClass, err := p.Classes.Default(ctx)
	if err != nil {
		return resolvedClass{}, fmt.Errorf("failed to get default priority class: %w", err)
	}
	if priorityClass == nil {
		lower := corev1.PreemptLowerPriority
		return resolvedClass{policy: &lower}, nil
	}
	return resolvedClass{name: priorityClass.Name, value: priorityClass.Value, policy: priorityClass.PreemptionPolicy}, nil
}

// setPriority sets the class name, priority and preemption policy of a new pod. It rejects a pod
// that already has another priority or preemption policy.
func (p *Plugin) setPriority(ctx context.Context, req *admission.Request, pod *corev1.Pod) error {
	class, err := p.classOf(ctx, req, pod)
	if err != nil {
		return err
	}
	if existing := pod.Spec.Priority; existing != nil && *existing != class.value {
		return req.Forbiddenf(
			"the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name",
			*existing,
			class.value,
		)
	}
	pod.Spec.PriorityClassName = class.name
	pod.Spec.Priority = &class.value
	if class.policy == nil {
		return nil
	}
	if existing := pod.Spec.PreemptionPolicy; existing != nil && *existing != *class.policy {
		return req.Forbiddenf(
			"the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name",
			*existing,
			*class.policy,
		)
	}
	policy := *class.policy
	pod.Spec.PreemptionPolicy = &policy
	return nil
}

// Validate rejects a second default class, and deletions of the system's classes.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if req.Operation == admission.Delete && req.IsObject(schedulingv1.GroupName, "priorityclasses") &&
		(req.Name == "system-node-critical" || req.Name == "system-cluster-critical") {
		return req.Forbiddenf("this is a system priority class and cannot be deleted")
	}
	priorityClass, ok := req.Object.(*schedulingv1.PriorityClass)
	if !ok || req.Subresource != "" || !priorityClass.GlobalDefault || req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	current, err := p.Classes.Default(ctx)
	if err != nil {
		return fmt.Errorf("failed to get default priority class: %w", err)
	}
	if current != nil && (req.Operation == admission.Create || current.Name != priorityClass.Name) {
		return req.Forbiddenf("PriorityClass %v is already marked as default. Only one default can exist", current.Name)
	}
	return nil
}

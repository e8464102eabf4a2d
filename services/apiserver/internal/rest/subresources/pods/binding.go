package pods

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
)

// serveBinding serves POST of a Binding: it assigns a pod to a node, once.
func (s *service) serveBinding(call *handlers.Call) error {
	req, err := call.CreateRequest()
	if err != nil {
		return err
	}
	obj, err := call.DecodeBody(req.FieldValidation, bindingGVK)
	if err != nil {
		return err
	}
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return fmt.Errorf("%T is not a Binding", obj)
	}
	owners, prepare := s.bindings, meta.SetNamespace // the subresource keeps the uid, a precondition
	if call.Sub == nil {
		owners, prepare = call.Owner(nil), meta.PrepareUnstored
	}
	if err := prepare(binding, call.Info.Namespace); err != nil {
		return err
	}
	s.Writer.RecordSentOwnership(call.Context(), req, owners, binding)
	err = call.AdmitValid(req.Admission(admission.Create, binding, nil), func() error {
		if call.Sub != nil && binding.Name != req.Name {
			return apierrors.NewBadRequest("name in URL does not match name in Binding object")
		}
		if errs := validateBinding(binding); len(errs) > 0 {
			return status.Invalid(bindingGVK.GroupKind(), binding.Name, errs) // Kubernetes: 500 without a reason
		}
		return nil
	})
	if err != nil {
		return err
	}
	if call.Sub == nil { // a Binding on the collection names the pod in the body
		if binding.Name == "" {
			return apierrors.NewBadRequest("Name parameter required.")
		}
		if err := handlers.CheckName(binding.Name); err != nil {
			return err
		}
		pods := call.StoredKind(corev1.SchemeGroupVersion.WithResource("pods"))
		req = req.ForObject(pods, pods.Subresource("binding"), call.Info.Namespace, binding.Name)
	}
	_, err = s.Writer.UpdateUnvalidated(call.Context(), req, func(pod registry.Object) error { return s.assignNode(req, pod, binding) })
	if err != nil {
		return err
	}
	s.WriteCreated(call.W, call.R)
	return nil
}

// validateBinding validates the target of a binding.
func validateBinding(binding *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	if kind := binding.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), kind, []string{"Node", "<empty>"}))
	}
	if binding.Target.Name == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	}
	return errs
}

// assignNode sets the node of a pod to the target of a binding.
func (s *service) assignNode(req *writes.Request, obj registry.Object, binding *corev1.Binding) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("%T is not a Pod", obj)
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, req.Name, fmt.Errorf(format, args...))
	}
	preconditionFailed := func(format string, args ...any) error {
		return apierrors.NewConflict(req.Resource.GroupResource(), req.Name,
			fmt.Errorf("Precondition failed: "+format, args...)) //nolint:staticcheck // the wording is the API's
	}
	switch {
	case binding.UID != "" && binding.UID != pod.UID:
		return preconditionFailed("UID in precondition: %v, UID in object meta: %v", binding.UID, pod.UID)
	case binding.ResourceVersion != "" && binding.ResourceVersion != pod.ResourceVersion:
		return preconditionFailed(
			"ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			binding.ResourceVersion,
			pod.ResourceVersion,
		)
	case pod.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return conflict("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return conflict("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = binding.Target.Name
	for k, v := range binding.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
	}
	if s.BindingLabels {
		for k, v := range binding.Labels {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, k, v)
		}
	}
	setScheduled(pod, metav1.NewTime(s.Now().UTC().Truncate(time.Second)))
	return nil
}

// setScheduled sets the PodScheduled condition to true.
func setScheduled(pod *corev1.Pod, now metav1.Time) {
	condition := corev1.PodCondition{
		Type:               corev1.PodScheduled,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: now,
	}
	for i := range pod.Status.Conditions {
		existing := &pod.Status.Conditions[i]
		if existing.Type != corev1.PodScheduled {
			continue
		}
		if existing.Status != corev1.ConditionTrue {
			*existing = condition
		}
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, condition)
}

package endpoints

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// bind answers POST of a Binding: it assigns a pod to a node, once.
func (a *API) bind(c *call) error {
	o, err := parseUpdateOptions(c.r)
	if err != nil {
		return err
	}
	body, media, err := a.body(c.r)
	if err != nil {
		return err
	}
	obj, err := a.decodeAs(c, corev1.SchemeGroupVersion.WithKind("Binding"), body, media, o)
	if err != nil {
		return err
	}
	b, ok := obj.(*corev1.Binding)
	if !ok {
		return fmt.Errorf("%T is no binding", obj)
	}
	if c.info.Subresource == "" { // POST of bindings names the pod in the body
		info := *c.info
		info.Name = b.Name
		pods := a.resources[a.Catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods"))]
		c = &call{resource: pods, w: c.w, r: c.r.WithContext(request.WithInfo(c.ctx(), &info)), info: &info, sub: pods.Subresource("binding")}
	}
	if b.Name != "" && b.Name != c.info.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(b); len(errs) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), b.Name, errs)
	}
	attrs := a.attributes(c, admission.Create, b, nil, o)
	if err := a.Admission.Mutate(c.ctx(), attrs); err != nil {
		return err
	}
	if err := a.Admission.Validate(c.ctx(), attrs); err != nil {
		return err
	}
	if _, err = a.modify(c, func(l *live) (outcome, error) { return a.assign(c, l, b, o) }); err != nil {
		return err
	}
	a.Done(c.w, c.r)
	return nil
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	if k := b.Target.Kind; k != "" && k != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), k, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	}
	return errs
}

func (a *API) assign(c *call, l *live, b *corev1.Binding, o *writeOptions) (outcome, error) {
	pod, ok := l.obj.DeepCopyObject().(*corev1.Pod)
	if !ok {
		return outcome{}, fmt.Errorf("%T is no pod", l.obj)
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(c.GroupResource(), c.info.Name, fmt.Errorf(format, args...))
	}
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return outcome{}, conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, pod.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion:
		return outcome{}, conflict("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", b.ResourceVersion, pod.ResourceVersion)
	case pod.DeletionTimestamp != nil:
		return outcome{}, conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return outcome{}, conflict("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return outcome{}, conflict("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = b.Target.Name
	for k, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
	}
	scheduled(pod, metav1.NewTime(a.Now().UTC().Truncate(second)))
	var obj registry.Object = pod
	value, err := c.coder.EncodeStored(obj)
	if err != nil {
		return outcome{}, fmt.Errorf("encode: %w", err)
	}
	return outcome{value: value, keep: o.dryRun}, nil
}

// scheduled sets the PodScheduled condition.
func scheduled(pod *corev1.Pod, now metav1.Time) {
	for i := range pod.Status.Conditions {
		if cond := &pod.Status.Conditions[i]; cond.Type == corev1.PodScheduled {
			if cond.Status != corev1.ConditionTrue {
				*cond = corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}
			}
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now})
}

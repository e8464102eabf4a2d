package pods

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
)

// maxDisruptedPods is the maximum number of evictions that the controller of a budget has not
// processed.
const maxDisruptedPods = 2000

// maxEvictionAttempts is the maximum number of attempts of an eviction whose pod changes meanwhile.
const maxEvictionAttempts = 20

// serveEviction serves POST of an Eviction: it deletes a pod if the disruption budgets allow it.
func (s *service) serveEviction(call *handlers.Call) error {
	req, err := call.CreateRequest()
	if err != nil {
		return err
	}
	eviction, err := decodeEviction(call, req.FieldValidation)
	if err != nil {
		return err
	}
	if err := meta.PrepareUnstored(eviction, call.Info.Namespace); err != nil {
		return err
	}
	s.Writer.RecordSentOwnership(call.Context(), req, s.evictions, eviction)
	dryRun := req.Options.(*metav1.CreateOptions).DryRun
	var deletion *metav1.DeleteOptions
	err = call.AdmitValid(req.Admission(admission.Create, eviction, nil), func() (err error) {
		if eviction.Name != call.Info.Name {
			return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
		}
		deletion, err = evictionOptions(eviction, dryRun)
		return err
	})
	if err != nil {
		return err
	}
	// The budgets make the decision, so admission is not called again for the deletion.
	req.DryRun = len(deletion.DryRun) > 0
	deleteRequest := req.ForObject(req.Resource, nil, req.Namespace, req.Name)
	deleteRequest.Admitted = true
	deleteRequest.BeforeDelete = s.setDisruptionTarget
	if err := s.evictPod(call, deleteRequest, deletion); err != nil {
		return err
	}
	s.WriteCreated(call.W, call.R)
	return nil
}

// decodeEviction decodes an Eviction in v1 or v1beta1. Both versions have the same fields.
func decodeEviction(call *handlers.Call, validation string) (*policyv1.Eviction, error) {
	obj, err := call.DecodeBody(validation, evictionGVK, policyv1beta1.SchemeGroupVersion.WithKind("Eviction"))
	if err != nil {
		return nil, err
	}
	switch e := obj.(type) {
	case *policyv1.Eviction:
		return e, nil
	case *policyv1beta1.Eviction:
		return &policyv1.Eviction{TypeMeta: e.TypeMeta, ObjectMeta: e.ObjectMeta, DeleteOptions: e.DeleteOptions}, nil
	}
	return nil, fmt.Errorf("%T is not an Eviction", obj)
}

// evictionOptions returns the options of the deletion. dryRun is the query parameter. It is an error
// if the body has another value.
func evictionOptions(eviction *policyv1.Eviction, dryRun []string) (*metav1.DeleteOptions, error) {
	deleteOptions := eviction.DeleteOptions
	if deleteOptions == nil {
		deleteOptions = &metav1.DeleteOptions{}
	}
	if ptr.Deref(deleteOptions.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return nil, status.Invalid(evictionGVK.GroupKind(), eviction.Name, field.ErrorList{
			field.Invalid(field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"),
				true, "can not be set for pod eviction, try after removing the option"),
		})
	}
	switch {
	case len(deleteOptions.DryRun) == 0:
		deleteOptions.DryRun = dryRun
	case len(dryRun) > 0 && !slices.Equal(deleteOptions.DryRun, dryRun):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v",
			dryRun, deleteOptions.DryRun))
	}
	return deleteOptions, nil
}

// evictPod deletes a pod if its budget allows it or it has none.
func (s *service) evictPod(call *handlers.Call, req *writes.Request, deleteOptions *metav1.DeleteOptions) error {
	versionGiven := deleteOptions.Preconditions != nil && deleteOptions.Preconditions.ResourceVersion != nil
	unconditionalDelete := *req
	unconditionalDelete.Options = deleteOptions
	for attempt := 1; ; attempt++ {
		obj, err := s.Writer.Read(call.Context(), req)
		if err != nil {
			return err
		}
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("%T is not a Pod", obj)
		}
		if errs := metav1validation.ValidateDeleteOptions(deleteOptions); len(errs) > 0 { // an absent pod is reported first
			return status.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
		}
		if err := unconditionalDelete.CheckPreconditions(pod); err != nil {
			return err // before the budget is changed
		}
		conditionalDelete := *req // only in the state of the pod that was checked
		options := deleteOptions.DeepCopy()
		conditionalDelete.Options = options
		if !versionGiven {
			if options.Preconditions == nil {
				options.Preconditions = &metav1.Preconditions{}
			}
			options.Preconditions.ResourceVersion = &pod.ResourceVersion
		}
		if !bypassesBudgets(pod) {
			return s.evictBudgeted(call, pod, &unconditionalDelete, &conditionalDelete)
		}
		if pod.Status.Phase != corev1.PodPending || !pod.DeletionTimestamp.IsZero() {
			_, err := s.Writer.Delete(call.Context(), &unconditionalDelete)
			return err
		}
		// A pod that becomes ready before the deletion counts for the budget.
		_, err = s.Writer.Delete(call.Context(), &conditionalDelete)
		if versionGiven || !apierrors.IsConflict(err) || attempt == maxEvictionAttempts {
			return err
		}
	}
}

// evictBudgeted evicts a running pod under its disruption budget. conditionalDelete deletes the pod
// only in its current state, unconditionalDelete in any state.
func (s *service) evictBudgeted(call *handlers.Call, pod *corev1.Pod, unconditionalDelete, conditionalDelete *writes.Request) error {
	kind := call.StoredKind(budgetResource)
	if err := call.WaitForCurrentOf(kind); err != nil {
		return err
	}
	budget, err := budgetOf(call.Context(), kind, pod)
	if err != nil {
		return err
	}
	if budget != nil && !isReady(pod) && mayEvictUnhealthy(budget) {
		_, err := s.Writer.Delete(call.Context(), conditionalDelete)
		options := unconditionalDelete.Options.(*metav1.DeleteOptions)
		if apierrors.IsConflict(err) && (options.Preconditions == nil || options.Preconditions.ResourceVersion == nil) {
			return tooManyEvictions(budget.Name)
		}
		return err
	}
	if budget != nil {
		if err := s.consumeDisruption(call, unconditionalDelete, budget.Name, pod.Name); err != nil {
			return err
		}
	}
	_, err = s.Writer.Delete(call.Context(), unconditionalDelete)
	return err
}

// bypassesBudgets reports whether no budget counts a pod, because it does not run.
func bypassesBudgets(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return !pod.DeletionTimestamp.IsZero()
}

// isReady reports whether a pod has the condition Ready.
func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// mayEvictUnhealthy reports whether a pod that is not ready may be evicted without consuming a
// disruption. It does not count as healthy (KEP-3017).
func mayEvictUnhealthy(budget *policyv1.PodDisruptionBudget) bool {
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}

// tooManyEvictions returns the error that asks the client to retry after the budget's controller
// has processed the changes.
func tooManyEvictions(budget string) error {
	return rejectEviction(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

// rejectEviction returns the error of an eviction that a budget does not allow. The client may
// retry after the given number of seconds.
func rejectEviction(retryAfter int, cause string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: cause,
	})
	return err
}

// consumeDisruption consumes one allowed disruption of a budget and records the pod, so that the
// budget's controller no longer counts it as available.
func (s *service) consumeDisruption(call *handlers.Call, req *writes.Request, budget, pod string) error {
	kind := call.StoredKind(budgetResource)
	write := req.ForObject(kind, kind.Subresource("status"), req.Namespace, budget)
	write.User = request.ServerUser()
	write.Manager = request.SelfManager
	write.Options = &metav1.UpdateOptions{}
	_, err := s.Writer.UpdateStored(call.Context(), write, func(obj registry.Object) error {
		budgetObject, ok := obj.(*policyv1.PodDisruptionBudget)
		if !ok {
			return fmt.Errorf("%T is not a PodDisruptionBudget", obj)
		}
		if err := mayDisrupt(budgetObject); err != nil {
			return err
		}
		now := metav1.NewTime(s.Now().UTC().Truncate(time.Second))
		budgetObject.Status.DisruptionsAllowed--
		if budgetObject.Status.DisruptionsAllowed == 0 {
			apimeta.SetStatusCondition(&budgetObject.Status.Conditions, metav1.Condition{
				Type:               policyv1.DisruptionAllowedCondition,
				Status:             metav1.ConditionFalse,
				Reason:             policyv1.InsufficientPodsReason,
				ObservedGeneration: budgetObject.Status.ObservedGeneration,
				LastTransitionTime: now,
			})
		}
		if budgetObject.Status.DisruptedPods == nil {
			budgetObject.Status.DisruptedPods = map[string]metav1.Time{}
		}
		budgetObject.Status.DisruptedPods[pod] = now
		return nil
	})
	return err
}

// mayDisrupt returns an error if a budget does not allow another disruption.
func mayDisrupt(budget *policyv1.PodDisruptionBudget) error {
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(schema.GroupResource{
			Group:    policyv1.GroupName,
			Resource: "poddisruptionbudget",
		}, budget.Name, errors.New(reason))
	}
	status := &budget.Status
	switch {
	case status.ObservedGeneration < budget.Generation:
		return tooManyEvictions(budget.Name)
	case status.DisruptionsAllowed < 0:
		return forbidden("pdb disruptions allowed is negative")
	case len(status.DisruptedPods) > maxDisruptedPods:
		return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case status.DisruptionsAllowed > 0:
		return nil
	}
	text := fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
		budget.Name, status.DesiredHealthy, status.CurrentHealthy)
	condition := apimeta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	syncFailed := condition != nil && condition.Reason == policyv1.SyncFailedReason && condition.Status == metav1.ConditionFalse
	if syncFailed {
		text = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s",
			budget.Name, condition.Message)
	} else if status.CurrentHealthy > status.DesiredHealthy {
		text = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", budget.Name)
	}
	return rejectEviction(0, text)
}

// setDisruptionTarget sets the condition that records why a pod is terminated (KEP-3329).
func (s *service) setDisruptionTarget(obj registry.Object) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	condition := corev1.PodCondition{
		Type:               corev1.DisruptionTarget,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(s.Now().UTC().Truncate(time.Second)),
		Reason:             "EvictionByEvictionAPI",
		Message:            "Eviction API: evicting",
	}
	for i := range pod.Status.Conditions {
		existing := &pod.Status.Conditions[i]
		if existing.Type != condition.Type {
			continue
		}
		if existing.Status == condition.Status {
			condition.LastTransitionTime = existing.LastTransitionTime
		}
		*existing = condition
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, condition)
}

package endpoints

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/watchcache"
)

// maxDisruptedPods bounds the evictions that the controller of a budget has not
// seen yet.
const maxDisruptedPods = 2000

// maxEvictionAttempts is how often an eviction starts anew because the pod
// changed meanwhile.
const maxEvictionAttempts = 20

// evict answers POST of an Eviction: it deletes a pod if the disruption budgets
// allow that.
func (a *API) evict(c *call) error {
	o, err := parseUpdateOptions(c.r)
	if err != nil {
		return err
	}
	e, err := a.decodeEviction(c, o)
	if err != nil {
		return err
	}
	if e.Name != c.info.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	do, err := evictionOptions(e, o)
	if err != nil {
		return err
	}
	o.dryRun = len(do.DryRun) > 0
	attrs := a.attributes(c, admission.Create, e, nil, o)
	if err := a.Admission.Mutate(c.ctx(), attrs); err != nil {
		return err
	}
	if err := a.Admission.Validate(c.ctx(), attrs); err != nil {
		return err
	}
	if err := a.evictPod(c.onObject(c.GVR(), c.info.Name, a), do); err != nil {
		return err
	}
	a.Done(c.w, c.r)
	return nil
}

// decodeEviction reads either version of the kind; they differ in nothing else.
func (a *API) decodeEviction(c *call, o *writeOptions) (*policyv1.Eviction, error) {
	body, media, err := a.body(c.r)
	if err != nil {
		return nil, err
	}
	obj, err := a.decodeAs(c, policyv1.SchemeGroupVersion.WithKind("Eviction"), body, media, o)
	if err != nil {
		if old, oldErr := a.decodeAs(c, policyv1beta1.SchemeGroupVersion.WithKind("Eviction"), body, media, o); oldErr == nil {
			obj, err = old, nil
		}
	}
	switch e := obj.(type) {
	case *policyv1.Eviction:
		return e, nil
	case *policyv1beta1.Eviction:
		return &policyv1.Eviction{TypeMeta: e.TypeMeta, ObjectMeta: e.ObjectMeta, DeleteOptions: e.DeleteOptions}, nil
	}
	if err == nil {
		err = fmt.Errorf("%T is no eviction", obj)
	}
	return nil, err
}

// evictionOptions are those of the deletion; whether it is a dry run may be said
// in the body or in the query.
func evictionOptions(e *policyv1.Eviction, o *writeOptions) (*metav1.DeleteOptions, error) {
	do := e.DeleteOptions
	if do == nil {
		do = &metav1.DeleteOptions{}
	}
	if len(do.DryRun) > 0 && !slices.Equal(do.DryRun, []string{metav1.DryRunAll}) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", []string{metav1.DryRunAll}, do.DryRun))
	}
	if o.dryRun {
		do.DryRun = []string{metav1.DryRunAll}
	}
	return do, nil
}

// onObject is the same request made of another object, in the same namespace if
// its kind has one.
func (c *call) onObject(gvr schema.GroupVersionResource, name string, a *API) *call {
	info := *c.info
	info.Group, info.Version, info.Resource, info.Name, info.Subresource = gvr.Group, gvr.Version, gvr.Resource, name, ""
	return &call{resource: a.resources[a.Catalog.Resource(gvr)], w: c.w, r: c.r.WithContext(request.WithInfo(c.ctx(), &info)), info: &info}
}

// budgets are the disruption budgets' resource.
var budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// evictPod deletes a pod as its budget, if it has one, allows it.
func (a *API) evictPod(c *call, do *metav1.DeleteOptions) error {
	chosen := do.Preconditions != nil && do.Preconditions.ResourceVersion != nil
	for attempt := 1; ; attempt++ {
		l, err := a.read(c.ctx(), c, true)
		if err != nil {
			return c.ref().translate(err)
		}
		pod, ok := l.obj.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("%T is no pod", l.obj)
		}
		if err := c.preconditions(do, pod); err != nil {
			return err // before anything is taken from a budget
		}
		now := do.DeepCopy() // the decision is about this state of the pod
		if !chosen {
			if now.Preconditions == nil {
				now.Preconditions = &metav1.Preconditions{}
			}
			now.Preconditions.ResourceVersion = &pod.ResourceVersion
		}
		if !unbudgeted(pod) {
			return a.evictBudgeted(c, pod, do, now)
		}
		if pod.Status.Phase != corev1.PodPending || !pod.DeletionTimestamp.IsZero() {
			return a.deleteEvicted(c, do)
		}
		// A pod that becomes ready meanwhile counts.
		if err = a.deleteEvicted(c, now); chosen || !apierrors.IsConflict(err) || attempt == maxEvictionAttempts {
			return err
		}
	}
}

// evictBudgeted evicts a pod that budgets count; now is do with the precondition
// that the pod has not changed.
func (a *API) evictBudgeted(c *call, pod *corev1.Pod, do, now *metav1.DeleteOptions) error {
	budget, err := a.budgetOf(c, pod)
	if err != nil {
		return err
	}
	if budget != nil && !podReady(pod) && unhealthyMayGo(budget) {
		err := a.deleteEvicted(c, now)
		if apierrors.IsConflict(err) && (do.Preconditions == nil || do.Preconditions.ResourceVersion == nil) {
			return tooManyEvictions(budget.Name)
		}
		return err
	}
	if budget != nil {
		if err := a.spend(c, budget.Name, pod.Name, len(do.DryRun) > 0); err != nil {
			return err
		}
	}
	return a.deleteEvicted(c, do)
}

// unbudgeted pods do not serve, so no budget counts them.
func unbudgeted(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return !p.DeletionTimestamp.IsZero()
}

func podReady(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// unhealthyMayGo tells whether a pod that is not ready, and so is not counted as
// healthy, may be evicted beside the budget (KEP-3017).
func unhealthyMayGo(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// budgetOf finds the budget that selects a pod; nil when none does.
func (a *API) budgetOf(c *call, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	if err := a.reach(c.ctx(), -1); err != nil {
		return nil, err
	}
	res := c.onObject(budgets, "", a).resource
	var found []*policyv1.PodDisruptionBudget
	var err error
	res.store.Snapshot().Ascend(res.prefix+pod.Namespace+"/", "", func(e *watchcache.Entry) bool {
		var obj registry.Object
		if obj, err = res.coder.DecodeStored(e.Stored(), e.Revision); err != nil {
			return false
		}
		if b, ok := obj.(*policyv1.PodDisruptionBudget); ok {
			selector, bad := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if bad == nil && selector.Matches(labels.Set(pod.Labels)) {
				found = append(found, b)
			}
		}
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case len(found) > 1:
		return nil, statusError(http.StatusInternalServerError, "", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", nil)
	case len(found) == 0:
		return nil, nil
	}
	return found[0], nil
}

// tooManyEvictions asks the client to come back when the budget's controller has
// seen what happened.
func tooManyEvictions(budget string) error {
	return refuseEviction(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

func refuseEviction(retryAfter int, cause string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}

// spend takes one disruption from a budget, and notes the pod, so that the
// budget's controller does not count it as available any more.
func (a *API) spend(c *call, budget, pod string, dryRun bool) error {
	bc := c.onObject(budgets, budget, a)
	_, err := a.modify(bc, func(l *live) (outcome, error) {
		b, ok := l.obj.DeepCopyObject().(*policyv1.PodDisruptionBudget)
		if !ok {
			return outcome{}, fmt.Errorf("%T is no disruption budget", l.obj)
		}
		if err := mayDisrupt(b); err != nil {
			return outcome{}, err
		}
		b.Status.DisruptionsAllowed--
		if b.Status.DisruptionsAllowed == 0 {
			apimeta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
				Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
				ObservedGeneration: b.Status.ObservedGeneration, LastTransitionTime: metav1.NewTime(a.Now().UTC().Truncate(second)),
			})
		}
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[pod] = metav1.NewTime(a.Now().UTC().Truncate(second))
		value, err := bc.coder.EncodeStored(b)
		if err != nil {
			return outcome{}, fmt.Errorf("encode: %w", err)
		}
		return outcome{value: value, keep: dryRun}, nil
	})
	return err
}

// mayDisrupt says why a budget does not allow another disruption.
func mayDisrupt(b *policyv1.PodDisruptionBudget) error {
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}, b.Name, errors.New(reason))
	}
	switch s := &b.Status; {
	case s.ObservedGeneration < b.Generation:
		return tooManyEvictions(b.Name)
	case s.DisruptionsAllowed < 0:
		return forbidden("pdb disruptions allowed is negative")
	case len(s.DisruptedPods) > maxDisruptedPods:
		return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed > 0:
		return nil
	}
	s := &b.Status
	text := fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, s.DesiredHealthy, s.CurrentHealthy)
	if c := apimeta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition); c != nil && c.Reason == policyv1.SyncFailedReason && c.Status == metav1.ConditionFalse {
		text = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	} else if s.CurrentHealthy > s.DesiredHealthy {
		text = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
	}
	return refuseEviction(0, text)
}

// deleteEvicted deletes a pod, or begins to, and says why in a condition
// (KEP-3329). The decision has been made: what is asked about deletions is not
// asked again.
func (a *API) deleteEvicted(c *call, do *metav1.DeleteOptions) error {
	_, err := a.modify(c, func(l *live) (outcome, error) {
		pod, ok := l.obj.DeepCopyObject().(*corev1.Pod)
		if !ok {
			return outcome{}, fmt.Errorf("%T is no pod", l.obj)
		}
		if err := c.preconditions(do, l.obj); err != nil {
			return outcome{}, err
		}
		disrupted(pod, metav1.NewTime(a.Now().UTC().Truncate(second)))
		stay, _ := c.beginDeletion(pod, do, a.Now())
		value, err := c.coder.EncodeStored(pod)
		if err != nil {
			return outcome{}, fmt.Errorf("encode: %w", err)
		}
		return outcome{value: value, remove: !stay, keep: len(do.DryRun) > 0}, nil
	})
	return err
}

// disrupted sets the condition that tells who ended a pod.
func disrupted(pod *corev1.Pod, now metav1.Time) {
	want := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: now,
		Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
	}
	for i := range pod.Status.Conditions {
		if have := &pod.Status.Conditions[i]; have.Type == want.Type {
			if have.Status == want.Status {
				want.LastTransitionTime = have.LastTransitionTime
			}
			*have = want
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, want)
}

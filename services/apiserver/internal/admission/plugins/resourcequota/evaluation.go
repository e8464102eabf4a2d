package resourcequota

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission"
)

// evaluation collects the results of evaluating the quotas of a namespace for one request.
type evaluation struct {
	request   *admission.Request
	evaluator *evaluator
	used      amounts // usage of the object; set by measure

	toCharge   []string      // names of the quotas to charge
	matched    bool          // some quota limits the object
	usageGrows bool          // the usage under some quota that limits the object grows
	covered    names         // resources that some matching quota limits
	scopes     []requirement // scopes of quotas that include the object
	rejection  error         // first error that rejects the request
}

// evaluate returns the names of the quotas to charge for a request, according to the cache. It
// rejects a request if the configuration requires a quota and there is none.
func (p *Plugin) evaluate(ctx context.Context, req *admission.Request, e *evaluator) (quotas []string, err error) {
	result := &evaluation{request: req, evaluator: e}
	hasQuota := false
	err = p.Quotas.Each(ctx, req.Namespace, func(resourceQuota *corev1.ResourceQuota) error {
		if !hasQuota { // measured once, and only if the namespace has a quota
			hasQuota = true
			result.rejection = result.measure()
		}
		if result.rejection == nil {
			result.rejection = result.addQuota(resourceQuota)
		}
		return result.rejection
	})
	switch {
	case result.rejection != nil:
		return nil, result.rejection
	case err != nil && (ctx.Err() != nil || apierrors.IsTooManyRequests(err)): // the request has ended or is throttled
		return nil, err
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	case !hasQuota && len(p.Configuration.LimitedResources) == 0:
		return nil, nil
	case !hasQuota:
		if err := result.measure(); err != nil {
			return nil, err
		}
	}
	if err := p.checkRequired(result); err != nil {
		return nil, err
	}
	return result.toCharge, nil
}

// measure computes the usage of the object, ev.used. It rejects negative amounts.
func (ev *evaluation) measure() (err error) {
	if ev.used, err = ev.evaluator.Usage(ev.request.Object); err != nil {
		return apierrors.NewInternalError(err)
	}
	isNegative := func(name corev1.ResourceName) bool {
		q := ev.used[name]
		return q.Sign() < 0
	}
	if negative := quota.SelectNames(ev.used, isNegative); len(negative) > 0 {
		return ev.request.Forbiddenf("quota usage is negative for resource(s): %s", formatNames(negative))
	}
	return nil
}

// addQuota evaluates one quota and adds the results to ev.
func (ev *evaluation) addQuota(resourceQuota *corev1.ResourceQuota) error {
	scopes, err := ev.evaluator.ScopesOf(ev.request.Object, quota.Scopes(resourceQuota))
	if err != nil {
		return ev.request.Forbidden(err)
	}
	ev.scopes = append(ev.scopes, scopes...)
	growth, applies, err := ev.evaluator.growthUnder(resourceQuota, ev.request, ev.used)
	if err != nil {
		return err
	}
	if applies {
		ev.matched = true
		ev.usageGrows = ev.usageGrows || len(growth) > 0
		ev.covered = append(ev.covered, quota.SelectNames(resourceQuota.Status.Hard, ev.evaluator.MatchesResource)...)
	}
	if len(quota.FilterNames(growth, resourceQuota.Status.Hard)) > 0 {
		ev.toCharge = append(ev.toCharge, resourceQuota.Name)
	}
	return nil
}

// growthUnder returns by how much a request increases the usage that counts under a quota. The
// result includes resources that the quota does not limit. If the quota does not limit the object,
// applies is false. used is the usage of the new object.
func (e *evaluator) growthUnder(
	resourceQuota *corev1.ResourceQuota,
	req *admission.Request,
	used amounts,
) (growth amounts, applies bool, err error) {
	if ok, err := e.matches(resourceQuota, req.Object); err != nil {
		return nil, false, req.Forbidden(err)
	} else if !ok {
		return nil, false, nil
	}
	restricted := quota.SelectNames(resourceQuota.Status.Hard, e.MatchesResource)
	if e.constraints != nil {
		if err := e.constraints(restricted, req.Object); err != nil {
			return nil, false, req.Forbiddenf("failed quota: %s: %w", resourceQuota.Name, err)
		}
	}
	for _, name := range restricted {
		if _, ok := resourceQuota.Status.Used[name]; !ok {
			return nil, false, req.Forbiddenf("status unknown for quota: %s, resources: %s", resourceQuota.Name, formatNames(restricted))
		}
	}
	if req.Operation == admission.Update {
		if ok, err := e.matches(resourceQuota, req.OldObject); err != nil {
			return nil, false, req.Forbidden(err)
		} else if ok {
			if used, err = e.growthSince(req.OldObject, used); err != nil {
				return nil, false, apierrors.NewInternalError(err)
			}
		}
	}
	return quota.Minus(used, nil), true, nil // Minus removes amounts that are zero
}

// growthSince returns the amounts by which used exceeds the usage of the old object.
func (e *evaluator) growthSince(old runtime.Object, used amounts) (amounts, error) {
	before, err := e.Usage(old)
	if err != nil {
		return nil, err
	}
	return quota.Minus(used, before), nil
}

// consumes reports whether the request increases usage. If quotas limit the object, the usage under
// these quotas counts, otherwise the usage of the object.
func (ev *evaluation) consumes() (bool, error) {
	if ev.matched {
		return ev.usageGrows, nil
	}
	used := quota.Minus(ev.used, nil)
	if ev.request.Operation == admission.Update {
		var err error
		if used, err = ev.evaluator.growthSince(ev.request.OldObject, ev.used); err != nil {
			return false, apierrors.NewInternalError(err)
		}
	}
	return len(used) > 0, nil
}

// checkRequired rejects a request that increases usage that the configuration permits only within a
// quota, if no quota covers it.
func (p *Plugin) checkRequired(result *evaluation) error {
	if len(p.Configuration.LimitedResources) == 0 {
		return nil
	}
	if consumes, err := result.consumes(); err != nil || !consumes {
		return err
	}
	req, evaluator := result.request, result.evaluator
	isCovered := func(n corev1.ResourceName) bool { return slices.Contains(result.covered, n) }
	uncovered := slices.DeleteFunc(p.Configuration.limitedNames(req.Resource.GVR().GroupResource(), result.used), isCovered)
	if len(uncovered) > 0 {
		return req.Forbiddenf("insufficient quota to consume: %s", formatNames(uncovered))
	}
	if !evaluator.requiresScopes {
		return nil
	}
	uncoveredScopes, err := evaluator.ScopesOf(req.Object, p.Configuration.limitedScopes())
	if err != nil {
		return req.Forbidden(err)
	}
	uncoveredScopes = slices.DeleteFunc(uncoveredScopes, func(s requirement) bool {
		return slices.ContainsFunc(result.scopes, func(q requirement) bool { return q.ScopeName == s.ScopeName })
	})
	if len(uncoveredScopes) > 0 {
		// The message of Kubernetes does not name the object.
		forbidden := apierrors.NewForbidden(req.Resource.GroupResource(), req.ObjectName(), nil)
		forbidden.ErrStatus.Message = fmt.Sprintf("insufficient quota to match these scopes: %v", uncoveredScopes)
		return forbidden
	}
	return nil
}

// addUsage adds delta to the usage of a quota, or returns an error if a limit would be exceeded. A
// status update may exceed the limit, because it reports usage that already exists.
func addUsage(req *admission.Request, resourceQuota *corev1.ResourceQuota, delta amounts) error {
	sum := quota.Plus(resourceQuota.Status.Used, delta)
	exceeded := amounts{}
	for name := range delta {
		usage, hard := sum[name], resourceQuota.Status.Hard[name]
		if req.Subresource != "status" && usage.Cmp(hard) > 0 {
			exceeded[name] = hard
		}
	}
	if len(exceeded) > 0 {
		return req.Forbiddenf(
			"exceeded quota: %s, requested: %s, used: %s, limited: %s",
			resourceQuota.Name,
			formatAmounts(quota.FilterNames(delta, exceeded)),
			formatAmounts(quota.FilterNames(resourceQuota.Status.Used, exceeded)),
			formatAmounts(exceeded),
		)
	}
	resourceQuota.Status.Used = sum
	return nil
}

// charge is usage that was added to a quota.
type charge struct {
	quota    string // name of the quota
	uid      string // of the quota
	amounts  amounts
	revision int64 // of the quota after the charge
	// recountTimes holds when each other field manager had last written the status of the quota
	// before the charge; see recountedSince.
	recountTimes map[string]metav1.Time
}

// refund subtracts a charge from a quota. It changes nothing if the quota controller may have
// recounted the objects since, because the usage then no longer contains the charge.
func (c *charge) refund(resourceQuota *corev1.ResourceQuota) {
	if string(resourceQuota.UID) != c.uid || resourceQuota.ResourceVersion != fmt.Sprint(c.revision) && c.recountedSince(resourceQuota) {
		return
	}
	for name, charged := range c.amounts {
		used, ok := resourceQuota.Status.Used[name]
		if !ok {
			continue
		}
		used.Sub(charged)
		if used.Sign() >= 0 {
			resourceQuota.Status.Used[name] = used
		}
	}
}

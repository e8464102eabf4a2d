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

// evaluation is the evaluation of a namespace's quotas for a request.
type evaluation struct {
	request   *admission.Request
	evaluator *evaluator
	used      amounts // usage of the object

	toCharge   []string // names of the quotas to charge
	matched    bool     // some quota limits the object
	usageGrows bool     // the usage of some quota that limits the object grows
	covered    names
	scopes     []requirement
	rejection  error
}

// evaluate returns the names of the quotas to charge for a request, according to the cache. It
// rejects a request that needs a missing quota.
func (p *Plugin) evaluate(ctx context.Context, r *admission.Request, e *evaluator) (quotas []string, err error) {
	ev := &evaluation{request: r, evaluator: e}
	hasQuota := false
	err = p.Quotas.Each(ctx, r.Namespace, func(q *corev1.ResourceQuota) error {
		if !hasQuota {
			hasQuota = true
			ev.rejection = ev.measure()
		}
		if ev.rejection == nil {
			ev.rejection = ev.addQuota(q)
		}
		return ev.rejection
	})
	switch {
	case ev.rejection != nil:
		return nil, ev.rejection
	case err != nil && (ctx.Err() != nil || apierrors.IsTooManyRequests(err)): // the request has ended or is throttled
		return nil, err
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	case !hasQuota && len(p.Configuration.LimitedResources) == 0:
		return nil, nil
	case !hasQuota:
		if err := ev.measure(); err != nil {
			return nil, err
		}
	}
	if err := p.checkRequired(ev); err != nil {
		return nil, err
	}
	return ev.toCharge, nil
}

// measure computes the usage of the object.
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

// addQuota evaluates one quota.
func (ev *evaluation) addQuota(q *corev1.ResourceQuota) error {
	scopes, err := ev.evaluator.ScopesOf(ev.request.Object, quota.Scopes(q))
	if err != nil {
		return ev.request.Forbidden(err)
	}
	ev.scopes = append(ev.scopes, scopes...)
	growth, applies, err := ev.evaluator.charges(ev.request, q, ev.used)
	if err != nil {
		return err
	}
	if applies {
		ev.matched = true
		ev.usageGrows = ev.usageGrows || len(growth) > 0
		ev.covered = append(ev.covered, quota.SelectNames(q.Status.Hard, ev.evaluator.MatchesResource)...)
	}
	if len(quota.FilterNames(growth, q.Status.Hard)) > 0 {
		ev.toCharge = append(ev.toCharge, q.Name)
	}
	return nil
}

// charges returns the growth of usage under a quota that limits the object, including resources
// that the quota does not limit. It returns false for other quotas. used is the usage of the
// object.
func (e *evaluator) charges(r *admission.Request, q *corev1.ResourceQuota, used amounts) (growth amounts, applies bool, err error) {
	if ok, err := e.matches(q, r.Object); err != nil {
		return nil, false, r.Forbidden(err)
	} else if !ok {
		return nil, false, nil
	}
	restricted := quota.SelectNames(q.Status.Hard, e.MatchesResource)
	if e.constraints != nil {
		if err := e.constraints(restricted, r.Object); err != nil {
			return nil, false, r.Forbiddenf("failed quota: %s: %w", q.Name, err)
		}
	}
	for _, name := range restricted {
		if _, ok := q.Status.Used[name]; !ok {
			return nil, false, r.Forbiddenf("status unknown for quota: %s, resources: %s", q.Name, formatNames(restricted))
		}
	}
	if r.Operation == admission.Update {
		if ok, err := e.matches(q, r.OldObject); err != nil {
			return nil, false, r.Forbidden(err)
		} else if ok {
			if used, err = e.growth(used, r.OldObject); err != nil {
				return nil, false, apierrors.NewInternalError(err)
			}
		}
	}
	return quota.Minus(used, nil), true, nil // removes zeros
}

// growth returns the amounts by which usage grows.
func (e *evaluator) growth(used amounts, old runtime.Object) (amounts, error) {
	before, err := e.Usage(old)
	if err != nil {
		return nil, err
	}
	return quota.Minus(used, before), nil
}

// consumes reports whether the request increases usage under a quota that limits the object. If no
// quota does, it reports whether the usage of the object grows.
func (ev *evaluation) consumes() (bool, error) {
	if ev.matched {
		return ev.usageGrows, nil
	}
	used := quota.Minus(ev.used, nil)
	if ev.request.Operation == admission.Update {
		var err error
		if used, err = ev.evaluator.growth(ev.used, ev.request.OldObject); err != nil {
			return false, apierrors.NewInternalError(err)
		}
	}
	return len(used) > 0, nil
}

// checkRequired rejects usage that needs a quota but has none.
func (p *Plugin) checkRequired(ev *evaluation) error {
	if len(p.Configuration.LimitedResources) == 0 {
		return nil
	}
	if consumes, err := ev.consumes(); err != nil || !consumes {
		return err
	}
	r, e := ev.request, ev.evaluator
	isCovered := func(n corev1.ResourceName) bool { return slices.Contains(ev.covered, n) }
	without := slices.DeleteFunc(p.Configuration.limited(r.Resource.GVR().GroupResource(), ev.used), isCovered)
	if len(without) > 0 {
		return r.Forbiddenf("insufficient quota to consume: %s", formatNames(without))
	}
	if !e.requiresScopes {
		return nil
	}
	limited, err := e.ScopesOf(r.Object, p.Configuration.scopes())
	if err != nil {
		return r.Forbidden(err)
	}
	limited = slices.DeleteFunc(limited, func(s requirement) bool {
		return slices.ContainsFunc(ev.scopes, func(q requirement) bool { return q.ScopeName == s.ScopeName })
	})
	if len(limited) > 0 {
		// The message of Kubernetes does not name the object.
		forbidden := apierrors.NewForbidden(r.Resource.GroupResource(), r.ObjectName(), nil)
		forbidden.ErrStatus.Message = fmt.Sprintf("insufficient quota to match these scopes: %v", limited)
		return forbidden
	}
	return nil
}

// addUsage adds delta to the usage of a quota, or returns an error if a limit would be exceeded.
// Status updates report facts, so they are counted beyond the limit.
func addUsage(r *admission.Request, q *corev1.ResourceQuota, delta amounts) error {
	sum := quota.Plus(q.Status.Used, delta)
	exceeded := amounts{}
	for name := range delta {
		usage, hard := sum[name], q.Status.Hard[name]
		if r.Subresource != "status" && usage.Cmp(hard) > 0 {
			exceeded[name] = hard
		}
	}
	if len(exceeded) > 0 {
		return r.Forbiddenf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
			q.Name, formatAmounts(quota.FilterNames(delta, exceeded)), formatAmounts(quota.FilterNames(q.Status.Used, exceeded)), formatAmounts(exceeded))
	}
	q.Status.Used = sum
	return nil
}

// charge is the usage that was added to a quota, and the revision of the quota after that.
type charge struct {
	quota    string
	uid      string
	amounts  amounts
	revision int64
	// recountTimes holds the times at which managers other than API servers last counted.
	recountTimes map[string]metav1.Time
}

// refund subtracts a charge from a quota, unless another manager has counted the objects since.
// Then the usage no longer contains the charge.
func (c *charge) refund(q *corev1.ResourceQuota) {
	if string(q.UID) != c.uid || q.ResourceVersion != fmt.Sprint(c.revision) && c.recountedSince(q) {
		return
	}
	for name, charged := range c.amounts {
		used, ok := q.Status.Used[name]
		if !ok {
			continue
		}
		used.Sub(charged)
		if used.Sign() >= 0 {
			q.Status.Used[name] = used
		}
	}
}

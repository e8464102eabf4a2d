package resourcequota

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
)

// judged is what comes of looking at the quotas of a namespace for a request.
type judged struct {
	request   *admission.Request
	evaluator *evaluator
	used      amounts // by the object

	asked   []string // names of the quotas that are to be charged
	matched bool     // some quota limits the object
	grows   bool     // a quota that limits the object sees it use more
	covered names
	scopes  []requirement
	refused error
}

// judge says which quotas are to be charged for a request, by what is known of
// them, and refuses what needs a quota that is not there.
func (p *Plugin) judge(ctx context.Context, r *admission.Request, e *evaluator) (asked []string, err error) {
	j := &judged{request: r, evaluator: e}
	some := false
	err = p.Quotas.Each(ctx, r.Namespace, func(q *corev1.ResourceQuota) error {
		if !some {
			some, j.refused = true, j.measure()
		}
		if j.refused == nil {
			j.refused = j.look(q)
		}
		return j.refused
	})
	switch {
	case j.refused != nil:
		return nil, j.refused
	case err != nil && (ctx.Err() != nil || apierrors.IsTooManyRequests(err)): // there was no time to look
		return nil, err
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	case !some && len(p.Configuration.LimitedResources) == 0:
		return nil, nil
	case !some:
		if err := j.measure(); err != nil {
			return nil, err
		}
	}
	if err := p.uncovered(j); err != nil {
		return nil, err
	}
	return j.asked, nil
}

// measure finds out what the object uses.
func (j *judged) measure() (err error) {
	if j.used, err = j.evaluator.usage(j.request.Object); err != nil {
		return apierrors.NewInternalError(err)
	}
	if negative := pick(j.used, func(name corev1.ResourceName) bool { q := j.used[name]; return q.Sign() < 0 }); len(negative) > 0 {
		return j.request.Forbiddenf("quota usage is negative for resource(s): %s", list(negative))
	}
	return nil
}

// look looks at one quota.
func (j *judged) look(q *corev1.ResourceQuota) error {
	in, err := j.evaluator.scopesOf(j.request.Object, selectors(q))
	if err != nil {
		return j.request.Forbidden(err)
	}
	j.scopes = append(j.scopes, in...)
	growth, concerned, err := j.evaluator.charges(j.request, q, j.used)
	if err != nil {
		return err
	}
	if concerned {
		j.matched, j.grows = true, j.grows || len(growth) > 0
		j.covered = append(j.covered, pick(q.Status.Hard, j.evaluator.counts)...)
	}
	if len(only(growth, q.Status.Hard)) > 0 {
		j.asked = append(j.asked, q.Name)
	}
	return nil
}

// charges returns what a quota that limits the object sees it use more, whether
// or not the quota limits that. It reports false for other quotas. used is what
// the object uses.
func (e *evaluator) charges(r *admission.Request, q *corev1.ResourceQuota, used amounts) (growth amounts, concerned bool, err error) {
	if ok, err := e.matches(q, r.Object); err != nil {
		return nil, false, r.Forbidden(err)
	} else if !ok {
		return nil, false, nil
	}
	restricted := pick(q.Status.Hard, e.counts)
	if e.constraints != nil {
		if err := e.constraints(restricted, r.Object); err != nil {
			return nil, false, r.Forbiddenf("failed quota: %s: %w", q.Name, err)
		}
	}
	for _, name := range restricted {
		if _, ok := q.Status.Used[name]; !ok {
			return nil, false, r.Forbiddenf("status unknown for quota: %s, resources: %s", q.Name, list(restricted))
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
	return minus(used, nil), true, nil // without zeros
}

// growth is what is used more than before.
func (e *evaluator) growth(used amounts, old runtime.Object) (amounts, error) {
	before, err := e.usage(old)
	if err != nil {
		return nil, err
	}
	return minus(used, before), nil
}

// consumes reports whether the request uses more than before: of the quotas
// that limit the object or, if there is none, of the namespace.
func (j *judged) consumes() (bool, error) {
	if j.matched {
		return j.grows, nil
	}
	used := minus(j.used, nil)
	if j.request.Operation == admission.Update {
		var err error
		if used, err = j.evaluator.growth(j.used, j.request.OldObject); err != nil {
			return false, apierrors.NewInternalError(err)
		}
	}
	return len(used) > 0, nil
}

// uncovered refuses what may be used only within a quota, and is not.
func (p *Plugin) uncovered(j *judged) error {
	if len(p.Configuration.LimitedResources) == 0 {
		return nil
	}
	if consumes, err := j.consumes(); err != nil || !consumes {
		return err
	}
	r, e := j.request, j.evaluator
	without := slices.DeleteFunc(p.Configuration.limited(r.Resource.GVR().GroupResource(), j.used), func(n corev1.ResourceName) bool { return slices.Contains(j.covered, n) })
	if len(without) > 0 {
		return r.Forbiddenf("insufficient quota to consume: %s", list(without))
	}
	if !e.covers {
		return nil
	}
	limited, err := e.scopesOf(r.Object, p.Configuration.scopes())
	if err != nil {
		return r.Forbidden(err)
	}
	limited = slices.DeleteFunc(limited, func(s requirement) bool {
		return slices.ContainsFunc(j.scopes, func(q requirement) bool { return q.ScopeName == s.ScopeName })
	})
	if len(limited) > 0 {
		// Kubernetes says this without naming the object.
		refusal := apierrors.NewForbidden(r.Resource.GroupResource(), r.ObjectName(), nil)
		refusal.ErrStatus.Message = fmt.Sprintf("insufficient quota to match these scopes: %v", limited)
		return refusal
	}
	return nil
}

// take takes delta from what a quota has left, or says what is missing.
// Statuses report what is, so they are counted even beyond the limit.
func take(r *admission.Request, q *corev1.ResourceQuota, delta amounts) error {
	sum := plus(q.Status.Used, delta)
	exceeded := amounts{}
	for name := range delta {
		now, hard := sum[name], q.Status.Hard[name]
		if r.Subresource != "status" && now.Cmp(hard) > 0 {
			exceeded[name] = hard
		}
	}
	if len(exceeded) > 0 {
		return r.Forbiddenf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
			q.Name, text(only(delta, exceeded)), text(only(q.Status.Used, exceeded)), text(exceeded))
	}
	q.Status.Used = sum
	return nil
}

// charge is what was taken of a quota at a revision.
type charge struct {
	quota    string
	uid      string
	amounts  amounts
	revision int64
	// counted is when others than API servers had counted last.
	counted map[string]metav1.Time
}

// giveBack returns a charge to a quota, unless somebody has counted the objects
// since: then it is no longer in the count.
func (c *charge) giveBack(q *corev1.ResourceQuota) {
	if string(q.UID) != c.uid || q.ResourceVersion != fmt.Sprint(c.revision) && c.countedSince(q) {
		return
	}
	for name, taken := range c.amounts {
		used, ok := q.Status.Used[name]
		if !ok {
			continue
		}
		used.Sub(taken)
		if used.Sign() >= 0 {
			q.Status.Used[name] = used
		}
	}
}

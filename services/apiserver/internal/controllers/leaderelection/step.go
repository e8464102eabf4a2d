package leaderelection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// step does what is due for one lease and its candidates. It returns when to evaluate the lease
// again at the latest if nothing changes, or the zero time.
func (c *worker) step(ctx context.Context, at namespacedName) (next time.Time, err error) {
	now := c.Now()
	all := slices.SortedFunc(maps.Values(c.candidatesOf[at]), order)
	if len(all) == 0 {
		return time.Time{}, nil
	}
	next = now.Add(relisting)
	if all, err = c.tidy(ctx, all, now); err != nil {
		return now.Add(patience), err
	}
	all = slices.DeleteFunc(all, func(c *candidate) bool { return c.lastSeen.IsZero() })
	if len(all) == 0 || at == controllerLease() || len(validation.IsDNS1123Subdomain(at.name)) > 0 {
		return next, nil
	}
	lease, err := c.read(ctx, at)
	if err != nil {
		return now.Add(patience), err
	}
	heard := slices.DeleteFunc(all, func(c *candidate) bool { return c.silent(now) })
	heard = heard[:min(len(heard), limit)]
	due, next, err := electionDue(lease, heard, now)
	if !due || err != nil {
		return next, err
	}
	if next, err = c.ask(ctx, heard, now); err != nil || !next.IsZero() {
		return next, err
	}
	there := slices.DeleteFunc(heard, func(c *candidate) bool { return !c.present(now) })
	if len(there) == 0 {
		return now.Add(patience), nil
	}
	wanted, err := outcome(lease, there, now)
	if wanted == nil || err != nil {
		return now.Add(patience), err
	}
	return now.Add(term), c.write(ctx, at, lease, wanted)
}

// tidy deletes forgotten candidates. It pings those that have not reported for half their validity,
// and those that were pinged by a clock that is ahead. It returns the remaining ones.
func (c *worker) tidy(ctx context.Context, all []*candidate, now time.Time) (kept []*candidate, err error) {
	done := 0
	for _, one := range all {
		old := one.expired(now)
		if !old {
			kept = append(kept, one)
		}
		// A live candidate reports before it would be deleted.
		stale := one.lastSeen.Add(validity/2).Before(now) && !one.unanswered() && !one.lastSeen.IsZero()
		if done == limit || !old && !stale && !one.outOfDate(now) {
			continue
		}
		if old {
			err = c.forget(ctx, one)
		} else {
			err = c.ping(ctx, one, now)
		}
		if err != nil {
			return nil, err
		}
		done++
	}
	return kept, nil
}

// forget deletes a candidate, unless it has just reported.
func (c *worker) forget(ctx context.Context, one *candidate) error {
	only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &one.UID, ResourceVersion: &one.ResourceVersion}}
	at := namespacedName{one.Namespace, one.Name}
	if err := c.API.Delete(ctx, at.candidate(), only); err != nil && !changed(err) {
		return fmt.Errorf("candidate %s: %w", at, err)
	}
	return nil
}

// ping asks a candidate to report that it is alive.
func (c *worker) ping(ctx context.Context, one *candidate, now time.Time) error {
	asked := one.DeepCopy()
	asked.Spec.PingTime = &metav1.MicroTime{Time: one.question(now)}
	at := namespacedName{one.Namespace, one.Name}
	if err := c.API.Update(ctx, at.candidate(), asked, nil); err != nil && !changed(err) {
		return fmt.Errorf("candidate %s: %w", at, err)
	}
	return nil
}

// read returns the current state of a lease, or nil if it does not exist.
func (c *worker) read(ctx context.Context, at namespacedName) (*coordinationv1.Lease, error) {
	var l coordinationv1.Lease
	err := c.API.Get(ctx, at.lease(), &l)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &l, err
}

// unheld reports whether a lease has no holder or has expired.
func unheld(l *coordinationv1.Lease, now time.Time) bool {
	return l == nil || text(l.Spec.HolderIdentity) == "" || !expiry(l).After(now)
}

func expiry(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
}

// electionDue reports whether an election is due for a lease, and if not, when it may be.
func electionDue(l *coordinationv1.Lease, heard []*candidate, now time.Time) (due bool, next time.Time, err error) {
	next = now.Add(patience)
	if len(heard) == 0 {
		return false, next, nil
	}
	strategy, err := strategyOf(heard)
	if err != nil {
		return false, next, err
	}
	if strategy != coordinationv1.OldestEmulationVersion {
		// The owner of the strategy chooses; the lease only records the strategy.
		return l == nil || text(l.Spec.Strategy) != string(strategy), next, nil
	}
	if unheld(l, now) {
		return true, next, nil
	}
	if at := expiry(l); at.Before(next) {
		next = at
	}
	chosen := best(heard)
	return chosen != nil && preferred(l, chosen) != text(l.Spec.PreferredHolder), next, nil
}

// preferred returns the candidate that should replace the holder of a lease, or "" if the holder is
// the chosen one.
func preferred(l *coordinationv1.Lease, chosen *candidate) string {
	if text(l.Spec.HolderIdentity) == chosen.Name {
		return ""
	}
	return chosen.Name
}

// ask pings the candidates that have not reported recently. It returns how long to wait for
// reports, or the zero time if none is missing.
func (c *worker) ask(ctx context.Context, all []*candidate, now time.Time) (until time.Time, err error) {
	for _, one := range all {
		switch {
		case one.unanswered():
			if end := one.asked.Add(patience); end.After(until) {
				until = end
			}
		case one.present(now):
		default:
			if err := c.ping(ctx, one, now); err != nil {
				return now.Add(patience), err
			}
			until = now.Add(patience)
		}
	}
	return until, nil
}

// changed reports whether a write failed because of a concurrent write. A notification of that
// write triggers the next step.
func changed(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// outcome returns the new spec of a lease, chosen from the live candidates, or nil if the lease
// needs no change. It does not replace a current holder, but names the preferred holder; the
// current one then releases the lease.
func outcome(l *coordinationv1.Lease, there []*candidate, now time.Time) (*coordinationv1.LeaseSpec, error) {
	strategy, err := strategyOf(there)
	if err != nil {
		return nil, err
	}
	seconds := int32(term / time.Second)
	renewed := metav1.MicroTime{Time: now}
	spec := &coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	if l != nil {
		spec = l.Spec.DeepCopy()
	}
	changes := l == nil || text(spec.Strategy) != string(strategy)
	spec.Strategy = &strategy
	var chosen *candidate
	if strategy == coordinationv1.OldestEmulationVersion {
		chosen = best(there)
	}
	switch {
	case chosen == nil && strategy == coordinationv1.OldestEmulationVersion:
		return nil, nil // no candidate has valid versions
	case chosen == nil:
	case unheld(l, now):
		if l != nil && text(l.Spec.HolderIdentity) != chosen.Name {
			transitions := int32(1)
			if was := l.Spec.LeaseTransitions; was != nil {
				transitions += *was
			}
			spec.LeaseTransitions = &transitions
		}
		spec.HolderIdentity, spec.PreferredHolder, spec.AcquireTime = &chosen.Name, nil, nil
		spec.LeaseDurationSeconds, spec.RenewTime = &seconds, &renewed
		changes = true
	default:
		if to := preferred(l, chosen); to != text(l.Spec.PreferredHolder) {
			spec.PreferredHolder, changes = &to, true
			if to == "" {
				spec.PreferredHolder = nil
			}
		}
	}
	if !changes {
		return nil, nil
	}
	return spec, nil
}

// write writes a lease if it is unchanged since it was read.
func (c *worker) write(ctx context.Context, at namespacedName, l *coordinationv1.Lease, spec *coordinationv1.LeaseSpec) (err error) {
	if l == nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: at.name}, Spec: *spec}
		err = c.API.Create(ctx, internalclient.Collection(group, "v1", leases, at.namespace), l)
	} else {
		l.Spec = *spec
		err = c.API.Update(ctx, at.lease(), l, nil)
	}
	if changed(err) {
		return nil
	}
	if err == nil && c.lines.AllowN(c.Now(), 1) {
		c.Logger.Info("a lease has an outcome", "lease", short(at.String()), "holder", short(text(spec.HolderIdentity)),
			"preferred", short(text(spec.PreferredHolder)), "strategy", short(text(spec.Strategy)))
	}
	return err
}

func text[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}

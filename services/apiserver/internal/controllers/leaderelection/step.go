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
	all := slices.SortedFunc(maps.Values(c.candidatesOf[at]), compareCandidates)
	if len(all) == 0 {
		return time.Time{}, nil
	}
	next = now.Add(relistInterval)
	if all, err = c.pingAndExpire(ctx, all, now); err != nil {
		return now.Add(pingTimeout), err
	}
	all = slices.DeleteFunc(all, func(c *candidate) bool { return c.lastSeen.IsZero() })
	if len(all) == 0 || at == controllerLease() || len(validation.IsDNS1123Subdomain(at.name)) > 0 {
		return next, nil
	}
	lease, err := c.readLease(ctx, at)
	if err != nil {
		return now.Add(pingTimeout), err
	}
	responsive := slices.DeleteFunc(all, func(c *candidate) bool { return c.isUnresponsive(now) })
	responsive = responsive[:min(len(responsive), maxCandidates)]
	due, next, err := electionDue(lease, responsive, now)
	if !due || err != nil {
		return next, err
	}
	next, err = c.pingMissing(ctx, responsive, now)
	if err != nil || !next.IsZero() {
		return next, err
	}
	alive := slices.DeleteFunc(responsive, func(c *candidate) bool { return !c.isAlive(now) })
	if len(alive) == 0 {
		return now.Add(pingTimeout), nil
	}
	wanted, err := electedSpec(lease, alive, now)
	if wanted == nil || err != nil {
		return now.Add(pingTimeout), err
	}
	return now.Add(firstLeaseDuration), c.writeLease(ctx, at, lease, wanted)
}

// pingAndExpire deletes forgotten candidates. It pings those that have not reported for half their
// candidateValidity, and those that were pinged by a clock that is ahead. It returns the remaining
// ones.
func (c *worker) pingAndExpire(ctx context.Context, all []*candidate, now time.Time) (kept []*candidate, err error) {
	done := 0
	for _, one := range all {
		old := one.expired(now)
		if !old {
			kept = append(kept, one)
		}
		// A live candidate reports before it would be deleted.
		stale := one.lastSeen.Add(candidateValidity/2).Before(now) && !one.isPingPending() && !one.lastSeen.IsZero()
		if done == maxCandidates || !old && !stale && !one.pingedInFuture(now) {
			continue
		}
		if old {
			err = c.deleteCandidate(ctx, one)
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

// deleteCandidate deletes a candidate, unless it has just reported.
func (c *worker) deleteCandidate(ctx context.Context, one *candidate) error {
	only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &one.UID, ResourceVersion: &one.ResourceVersion}}
	at := namespacedName{one.Namespace, one.Name}
	if err := c.API.Delete(ctx, at.candidate(), only); err != nil && !isConcurrentWrite(err) {
		return fmt.Errorf("candidate %s: %w", at, err)
	}
	return nil
}

// ping asks a candidate to report that it is alive.
func (c *worker) ping(ctx context.Context, one *candidate, now time.Time) error {
	pinged := one.DeepCopy()
	pinged.Spec.PingTime = &metav1.MicroTime{Time: one.nextPingTime(now)}
	at := namespacedName{one.Namespace, one.Name}
	if err := c.API.Update(ctx, at.candidate(), pinged, nil); err != nil && !isConcurrentWrite(err) {
		return fmt.Errorf("candidate %s: %w", at, err)
	}
	return nil
}

// readLease returns the current state of a lease, or nil if it does not exist.
func (c *worker) readLease(ctx context.Context, at namespacedName) (*coordinationv1.Lease, error) {
	var l coordinationv1.Lease
	err := c.API.Get(ctx, at.lease(), &l)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &l, err
}

// isUnheld reports whether a lease has no holder or has expired.
func isUnheld(l *coordinationv1.Lease, now time.Time) bool {
	return l == nil || valueOf(l.Spec.HolderIdentity) == "" || !expiry(l).After(now)
}

// expiry returns when a lease ends unless it is renewed.
func expiry(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
}

// electionDue reports whether an election is due for a lease, and if not, when it may be.
func electionDue(l *coordinationv1.Lease, responsive []*candidate, now time.Time) (due bool, next time.Time, err error) {
	next = now.Add(pingTimeout)
	if len(responsive) == 0 {
		return false, next, nil
	}
	strategy, err := strategyOf(responsive)
	if err != nil {
		return false, next, err
	}
	if strategy != coordinationv1.OldestEmulationVersion {
		// The owner of the strategy chooses; the lease only records the strategy.
		return l == nil || valueOf(l.Spec.Strategy) != string(strategy), next, nil
	}
	if isUnheld(l, now) {
		return true, next, nil
	}
	if at := expiry(l); at.Before(next) {
		next = at
	}
	chosen := bestCandidate(responsive)
	return chosen != nil && preferred(l, chosen) != valueOf(l.Spec.PreferredHolder), next, nil
}

// preferred returns the candidate that should replace the holder of a lease, or "" if the holder is
// the chosen one.
func preferred(l *coordinationv1.Lease, chosen *candidate) string {
	if valueOf(l.Spec.HolderIdentity) == chosen.Name {
		return ""
	}
	return chosen.Name
}

// pingMissing pings the candidates that have not reported recently. It returns how long to wait for
// reports, or the zero time if none is missing.
func (c *worker) pingMissing(ctx context.Context, all []*candidate, now time.Time) (until time.Time, err error) {
	for _, one := range all {
		switch {
		case one.isPingPending():
			if end := one.pingedAt.Add(pingTimeout); end.After(until) {
				until = end
			}
		case one.isAlive(now):
		default:
			if err := c.ping(ctx, one, now); err != nil {
				return now.Add(pingTimeout), err
			}
			until = now.Add(pingTimeout)
		}
	}
	return until, nil
}

// isConcurrentWrite reports whether a write failed because of a concurrent write. A notification of
// that write triggers the next step.
func isConcurrentWrite(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// electedSpec returns the new spec of a lease, chosen from the live candidates, or nil if the lease
// needs no change. It does not replace a current holder, but names the preferred holder; the
// current one then releases the lease.
func electedSpec(l *coordinationv1.Lease, alive []*candidate, now time.Time) (*coordinationv1.LeaseSpec, error) {
	strategy, err := strategyOf(alive)
	if err != nil {
		return nil, err
	}
	seconds := int32(firstLeaseDuration / time.Second)
	renewed := metav1.MicroTime{Time: now}
	spec := &coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	if l != nil {
		spec = l.Spec.DeepCopy()
	}
	changes := l == nil || valueOf(spec.Strategy) != string(strategy)
	spec.Strategy = &strategy
	var chosen *candidate
	if strategy == coordinationv1.OldestEmulationVersion {
		chosen = bestCandidate(alive)
	}
	switch {
	case chosen == nil && strategy == coordinationv1.OldestEmulationVersion:
		return nil, nil // no candidate has valid versions
	case chosen == nil:
	case isUnheld(l, now):
		if l != nil && valueOf(l.Spec.HolderIdentity) != chosen.Name {
			transitions := int32(1)
			if was := l.Spec.LeaseTransitions; was != nil {
				transitions += *was
			}
			spec.LeaseTransitions = &transitions
		}
		spec.HolderIdentity = &chosen.Name
		spec.PreferredHolder = nil
		spec.AcquireTime = nil
		spec.LeaseDurationSeconds = &seconds
		spec.RenewTime = &renewed
		changes = true
	default:
		if to := preferred(l, chosen); to != valueOf(l.Spec.PreferredHolder) {
			spec.PreferredHolder = &to
			changes = true
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

// writeLease writes a lease if it is unchanged since it was read.
func (c *worker) writeLease(ctx context.Context, at namespacedName, l *coordinationv1.Lease, spec *coordinationv1.LeaseSpec) (err error) {
	if l == nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: at.name}, Spec: *spec}
		err = c.API.Create(ctx, internalclient.Collection(group, "v1", leases, at.namespace), l)
	} else {
		l.Spec = *spec
		err = c.API.Update(ctx, at.lease(), l, nil)
	}
	if isConcurrentWrite(err) {
		return nil
	}
	if err == nil && c.logLimiter.AllowN(c.Now(), 1) {
		c.Logger.Info("a lease has an outcome", "lease", truncated(at.String()), "holder", truncated(valueOf(spec.HolderIdentity)),
			"preferred", truncated(valueOf(spec.PreferredHolder)), "strategy", truncated(valueOf(spec.Strategy)))
	}
	return err
}

// valueOf returns the string that p points to, or "".
func valueOf[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}

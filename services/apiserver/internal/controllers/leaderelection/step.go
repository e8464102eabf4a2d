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

// step evaluates one lease and its candidates. It returns when to evaluate the lease again if nothing
// changes before, or the zero time.
func (w *worker) step(ctx context.Context, name namespacedName) (next time.Time, err error) {
	now := w.Now()
	all := slices.SortedFunc(maps.Values(w.candidatesOf[name]), compareCandidates)
	if len(all) == 0 {
		return time.Time{}, nil
	}
	next = now.Add(relistInterval)
	if all, err = w.pingAndExpire(ctx, all, now); err != nil {
		return now.Add(pingTimeout), err
	}
	all = slices.DeleteFunc(all, func(c *candidate) bool { return c.lastSeen.IsZero() })
	if len(all) == 0 || name == controllerLease() || len(validation.IsDNS1123Subdomain(name.name)) > 0 {
		return next, nil
	}
	lease, err := w.readLease(ctx, name)
	if err != nil {
		return now.Add(pingTimeout), err
	}
	responsive := slices.DeleteFunc(all, func(c *candidate) bool { return c.isUnresponsive(now) })
	responsive = responsive[:min(len(responsive), maxCandidates)]
	due, next, err := electionDue(lease, responsive, now)
	if !due || err != nil {
		return next, err
	}
	next, err = w.pingMissing(ctx, responsive, now)
	if err != nil || !next.IsZero() {
		return next, err
	}
	alive := slices.DeleteFunc(responsive, func(c *candidate) bool { return !c.isAlive(now) })
	if len(alive) == 0 {
		return now.Add(pingTimeout), nil
	}
	desired, err := electedSpec(lease, alive, now)
	if desired == nil || err != nil {
		return now.Add(pingTimeout), err
	}
	return now.Add(firstLeaseDuration), w.writeLease(ctx, name, lease, desired)
}

// pingAndExpire deletes expired candidates. It pings candidates that have not reported for half their
// candidateValidity, and candidates that were pinged by a server whose clock is ahead. It returns the
// candidates that have not expired.
func (w *worker) pingAndExpire(ctx context.Context, all []*candidate, now time.Time) (retained []*candidate, err error) {
	writes := 0
	for _, c := range all {
		expired := c.expired(now)
		if !expired {
			retained = append(retained, c)
		}
		// A live candidate responds to a ping, so it reports before it expires.
		stale := c.lastSeen.Add(candidateValidity/2).Before(now) && !c.isPingPending() && !c.lastSeen.IsZero()
		if writes == maxCandidates || !expired && !stale && !c.pingedInFuture(now) {
			continue
		}
		if expired {
			err = w.deleteCandidate(ctx, c)
		} else {
			err = w.ping(ctx, c, now)
		}
		if err != nil {
			return nil, err
		}
		writes++
	}
	return retained, nil
}

// deleteCandidate deletes a candidate, unless it has just reported.
func (w *worker) deleteCandidate(ctx context.Context, c *candidate) error {
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion}}
	name := namespacedName{c.Namespace, c.Name}
	if err := w.API.Delete(ctx, name.candidate(), options); err != nil && !isConcurrentWrite(err) {
		return fmt.Errorf("candidate %s: %w", name, err)
	}
	return nil
}

// ping asks a candidate to report that it is alive.
func (w *worker) ping(ctx context.Context, c *candidate, now time.Time) error {
	pinged := c.DeepCopy()
	pinged.Spec.PingTime = &metav1.MicroTime{Time: c.nextPingTime(now)}
	name := namespacedName{c.Namespace, c.Name}
	if err := w.API.Update(ctx, name.candidate(), pinged, nil); err != nil && !isConcurrentWrite(err) {
		return fmt.Errorf("candidate %s: %w", name, err)
	}
	return nil
}

// readLease returns the current state of a lease, or nil if it does not exist.
func (w *worker) readLease(ctx context.Context, name namespacedName) (*coordinationv1.Lease, error) {
	var l coordinationv1.Lease
	err := w.API.Get(ctx, name.lease(), &l)
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
		// The component that defines the strategy chooses the holder. Only the strategy is written.
		return l == nil || valueOf(l.Spec.Strategy) != string(strategy), next, nil
	}
	if isUnheld(l, now) {
		return true, next, nil
	}
	if end := expiry(l); end.Before(next) {
		next = end
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

// pingMissing pings the candidates that have not reported recently. It returns the time until which
// to wait for reports, or the zero time if none is missing.
func (w *worker) pingMissing(ctx context.Context, all []*candidate, now time.Time) (until time.Time, err error) {
	for _, c := range all {
		switch {
		case c.isPingPending():
			if end := c.pingedAt.Add(pingTimeout); end.After(until) {
				until = end
			}
		case c.isAlive(now):
		default:
			if err := w.ping(ctx, c, now); err != nil {
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
			if previous := l.Spec.LeaseTransitions; previous != nil {
				transitions += *previous
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
		if preferredName := preferred(l, chosen); preferredName != valueOf(l.Spec.PreferredHolder) {
			spec.PreferredHolder = &preferredName
			changes = true
			if preferredName == "" {
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
func (w *worker) writeLease(ctx context.Context, name namespacedName, l *coordinationv1.Lease, spec *coordinationv1.LeaseSpec) (err error) {
	if l == nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.namespace, Name: name.name}, Spec: *spec}
		err = w.API.Create(ctx, internalclient.Collection(group, "v1", leases, name.namespace), l)
	} else {
		l.Spec = *spec
		err = w.API.Update(ctx, name.lease(), l, nil)
	}
	if isConcurrentWrite(err) {
		return nil
	}
	if err == nil && w.logLimiter.AllowN(w.Now(), 1) {
		w.Logger.Info("elected the holder of a lease", "lease", truncated(name.String()), "holder", truncated(valueOf(spec.HolderIdentity)),
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

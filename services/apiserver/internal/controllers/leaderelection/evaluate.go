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

// evaluateLease evaluates one lease and its candidates:
//
//  1. Delete expired candidates, and ping candidates that have not reported for a long time.
//  2. Determine whether an election is due, considering only responsive candidates.
//  3. Ping the candidates that have not reported recently, and wait for their reports.
//  4. Elect one of the candidates that have reported, and write the Lease.
//
// Each call takes as many steps as possible. It returns when to call it again if no notification
// comes earlier, or the zero time if the lease has no candidates.
func (w *worker) evaluateLease(ctx context.Context, name namespacedName) (next time.Time, err error) {
	now := w.Now()
	all := slices.SortedFunc(maps.Values(w.candidatesOf[name]), compareCandidates)
	if len(all) == 0 {
		return time.Time{}, nil
	}

	// Step 1.
	next = now.Add(relistInterval)
	if all, err = w.deleteExpiredAndPing(ctx, all, now); err != nil {
		return now.Add(pingTimeout), err
	}

	// Step 2.
	all = slices.DeleteFunc(all, func(c *candidate) bool { return c.lastSeen.IsZero() })
	isEligible := name != controllerLease() && len(validation.IsDNS1123Subdomain(name.name)) == 0
	if len(all) == 0 || !isEligible {
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

	// Step 3.
	next, err = w.pingSilent(ctx, responsive, now)
	if err != nil || !next.IsZero() {
		return next, err
	}

	// Step 4.
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

// deleteExpiredAndPing deletes expired candidates. It pings candidates that have not reported for
// half of candidateValidity, and candidates whose pingTime is in the future. It returns the
// candidates that have not expired.
func (w *worker) deleteExpiredAndPing(ctx context.Context, all []*candidate, now time.Time) (retained []*candidate, err error) {
	writes := 0
	for _, candidate := range all {
		expired := candidate.isExpired(now)
		if !expired {
			retained = append(retained, candidate)
		}
		// If a stale candidate is alive, it responds to the ping, so it does not expire.
		stale := candidate.lastSeen.Add(candidateValidity/2).Before(now) && !candidate.isPingPending() && !candidate.lastSeen.IsZero()
		needsWrite := expired || stale || candidate.pingedInFuture(now)
		if !needsWrite || writes == maxCandidates {
			continue
		}
		if expired {
			err = w.deleteCandidate(ctx, candidate)
		} else {
			err = w.ping(ctx, candidate, now)
		}
		if err != nil {
			return nil, err
		}
		writes++
	}
	return retained, nil
}

// deleteCandidate deletes a candidate, unless it has changed since it was read.
func (w *worker) deleteCandidate(ctx context.Context, c *candidate) error {
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion}}
	name := namespacedName{namespace: c.Namespace, name: c.Name}
	if err := w.API.Delete(ctx, name.candidateRef(), options); err != nil && !isConcurrentWrite(err) {
		return fmt.Errorf("candidate %s: %w", name, err)
	}
	return nil
}

// ping asks a candidate to report that it is alive, by writing its pingTime.
func (w *worker) ping(ctx context.Context, contender *candidate, now time.Time) error {
	pinged := contender.DeepCopy()
	pinged.Spec.PingTime = &metav1.MicroTime{Time: contender.nextPingTime(now)}
	name := namespacedName{namespace: contender.Namespace, name: contender.Name}
	if err := w.API.Update(ctx, name.candidateRef(), pinged, nil); err != nil && !isConcurrentWrite(err) {
		return fmt.Errorf("candidate %s: %w", name, err)
	}
	return nil
}

// readLease returns the current state of a lease, or nil if it does not exist.
func (w *worker) readLease(ctx context.Context, name namespacedName) (*coordinationv1.Lease, error) {
	var lease coordinationv1.Lease
	err := w.API.Get(ctx, name.leaseRef(), &lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &lease, err
}

// isUnheld reports whether a lease does not exist (nil), has no holder or has expired.
func isUnheld(l *coordinationv1.Lease, now time.Time) bool {
	return l == nil || valueOf(l.Spec.HolderIdentity) == "" || !expiry(l).After(now)
}

// expiry returns when a lease expires unless its holder renews it. It returns the zero time if the
// lease was never renewed.
func expiry(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
}

// electionDue reports whether an election is due for a lease: the lease has no holder or the wrong
// strategy, or its holder is not the best candidate. If no election is due, next is when to check
// again. lease is nil if the lease does not exist.
func electionDue(lease *coordinationv1.Lease, responsive []*candidate, now time.Time) (due bool, next time.Time, err error) {
	next = now.Add(pingTimeout)
	if len(responsive) == 0 {
		return false, next, nil
	}
	strategy, err := strategyOf(responsive)
	if err != nil {
		return false, next, err
	}
	if strategy != coordinationv1.OldestEmulationVersion {
		// The server only writes the strategy. The component that defines it sets the holder.
		return lease == nil || valueOf(lease.Spec.Strategy) != string(strategy), next, nil
	}
	if isUnheld(lease, now) {
		return true, next, nil
	}
	if expires := expiry(lease); expires.Before(next) {
		next = expires
	}
	chosen := bestCandidate(responsive)
	return chosen != nil && preferredHolder(lease, chosen) != valueOf(lease.Spec.PreferredHolder), next, nil
}

// preferredHolder returns the name of the candidate that should replace the holder of a lease, or
// "" if the chosen candidate is the holder already.
func preferredHolder(l *coordinationv1.Lease, chosen *candidate) string {
	if valueOf(l.Spec.HolderIdentity) == chosen.Name {
		return ""
	}
	return chosen.Name
}

// pingSilent pings the candidates that have not reported recently. It returns the time until which
// to wait for their reports, or the zero time if all candidates have reported.
func (w *worker) pingSilent(ctx context.Context, all []*candidate, now time.Time) (until time.Time, err error) {
	for _, candidate := range all {
		switch {
		case candidate.isPingPending():
			if timeout := candidate.pingedAt.Add(pingTimeout); timeout.After(until) {
				until = timeout
			}
		case candidate.isAlive(now): // has reported
		default:
			if err := w.ping(ctx, candidate, now); err != nil {
				return now.Add(pingTimeout), err
			}
			until = now.Add(pingTimeout)
		}
	}
	return until, nil
}

// isConcurrentWrite reports whether a write failed because of a concurrent write. The notification
// of that write causes another evaluation, so such an error needs no retry.
func isConcurrentWrite(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// electedSpec returns the new spec of a lease after an election among the live candidates, or nil
// if the lease needs no change. lease is the current lease, or nil if it does not exist.
func electedSpec(lease *coordinationv1.Lease, alive []*candidate, now time.Time) (*coordinationv1.LeaseSpec, error) {
	strategy, err := strategyOf(alive)
	if err != nil {
		return nil, err
	}
	spec := &coordinationv1.LeaseSpec{}
	if lease != nil {
		spec = lease.Spec.DeepCopy()
	} else {
		startLease(spec, now)
	}
	changed := lease == nil || valueOf(spec.Strategy) != string(strategy)
	spec.Strategy = &strategy
	if strategy == coordinationv1.OldestEmulationVersion { // with other strategies, their component sets the holder
		chosen := bestCandidate(alive)
		switch {
		case chosen == nil:
			return nil, nil // no candidate has valid versions
		case isUnheld(lease, now):
			setHolder(spec, lease, chosen, now)
			changed = true
		case setPreferredHolder(spec, lease, chosen):
			changed = true
		}
	}
	if !changed {
		return nil, nil
	}
	return spec, nil
}

// startLease makes a lease begin now and last for firstLeaseDuration.
func startLease(spec *coordinationv1.LeaseSpec, now time.Time) {
	seconds := int32(firstLeaseDuration / time.Second)
	spec.LeaseDurationSeconds = &seconds
	spec.RenewTime = &metav1.MicroTime{Time: now}
}

// setHolder makes a candidate the holder of a lease that has no holder. lease is the current lease, or
// nil.
func setHolder(spec *coordinationv1.LeaseSpec, lease *coordinationv1.Lease, chosen *candidate, now time.Time) {
	if lease != nil && valueOf(lease.Spec.HolderIdentity) != chosen.Name {
		transitions := int32(1)
		if previous := lease.Spec.LeaseTransitions; previous != nil {
			transitions += *previous
		}
		spec.LeaseTransitions = &transitions
	}
	spec.HolderIdentity = &chosen.Name
	spec.PreferredHolder = nil
	spec.AcquireTime = nil
	startLease(spec, now)
}

// setPreferredHolder names a candidate as the preferred holder of a lease that another candidate
// holds. The holder then releases the lease. If the holder is the candidate itself, there is no
// preferred holder. setPreferredHolder reports whether it changed the spec.
func setPreferredHolder(spec *coordinationv1.LeaseSpec, l *coordinationv1.Lease, chosen *candidate) (changed bool) {
	name := preferredHolder(l, chosen)
	if name == valueOf(l.Spec.PreferredHolder) {
		return false
	}
	spec.PreferredHolder = nil
	if name != "" {
		spec.PreferredHolder = &name
	}
	return true
}

// writeLease writes the spec of a lease, unless the lease has changed since it was read. lease is the
// lease as it was read, or nil to create it.
func (w *worker) writeLease(
	ctx context.Context,
	name namespacedName,
	lease *coordinationv1.Lease,
	spec *coordinationv1.LeaseSpec,
) (err error) {
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.namespace, Name: name.name}, Spec: *spec}
		err = w.API.Create(ctx, internalclient.Collection(group, "v1", leases, name.namespace), lease)
	} else {
		lease.Spec = *spec
		err = w.API.Update(ctx, name.leaseRef(), lease, nil)
	}
	if isConcurrentWrite(err) {
		return nil
	}
	if err == nil && w.logLimiter.AllowN(w.Now(), 1) {
		w.Logger.Info("elected the holder of a lease",
			"lease", truncated(name.String()),
			"holder", truncated(valueOf(spec.HolderIdentity)),
			"preferred", truncated(valueOf(spec.PreferredHolder)),
			"strategy", truncated(valueOf(spec.Strategy)))
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

package election

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The protocol is that of client-go, so both can compete for a lease. A candidate takes the lease
// over if it has no holder, or if it has not changed for its duration by the candidate's own clock.
// Every write depends on the resource version, so of two candidates one succeeds.

// jitterFactor is the relative maximum by which the pause of a candidate is extended.
const jitterFactor = 1.2

// waitForLease waits until this replica holds the lease. It returns false if ctx ended.
func (e *Election) waitForLease(ctx context.Context) bool {
	for ctx.Err() == nil {
		if e.tryAcquireOrRenew(ctx) {
			return true
		}
		sleep(ctx, e.options.RetryPeriod+time.Duration(rand.Float64()*jitterFactor*float64(e.options.RetryPeriod)))
	}
	return false
}

// renewUntilLost renews the lease until ctx ends or no renewal has succeeded for the renewal
// deadline.
func (e *Election) renewUntilLost(ctx context.Context) {
	for renewed := time.Now(); ; {
		bounded, cancel := context.WithDeadline(ctx, renewed.Add(e.options.RenewDeadline))
		sleep(bounded, e.options.RetryPeriod)
		started := time.Now()
		ok := bounded.Err() == nil && e.tryAcquireOrRenew(bounded)
		ended := bounded.Err() != nil
		cancel()
		switch {
		case ok:
			renewed = started
		case ended:
			return
		}
	}
}

// sleep waits, at most until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// tryAcquireOrRenew sends the requests to acquire or renew the lease once, and reports whether this
// replica holds it.
func (e *Election) tryAcquireOrRenew(ctx context.Context) bool {
	// 1. The holder writes without reading first.
	if e.holdsLease() {
		if e.takeOrRenew(ctx, e.lease) {
			return true
		}
	}
	// 2. Read the lease, or create it.
	got, err := e.leases.Get(ctx, e.options.ResourceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return e.createLease(ctx)
	}
	if err != nil {
		e.logFailure(ctx, "read", err)
		return false
	}
	e.recordLease(got)
	// 3. Another holder keeps it until it expires.
	if holder := holderOf(got); holder != "" && holder != e.identity && !e.leaseExpired() {
		return false
	}
	// 4. Take it over, or renew it.
	return e.takeOrRenew(ctx, got)
}

// holdsLease reports whether this replica holds a lease that has not expired.
func (e *Election) holdsLease() bool {
	return e.lease != nil && holderOf(e.lease) == e.identity && !e.leaseExpired()
}

// leaseExpired reports whether the lease has not changed for its duration.
func (e *Election) leaseExpired() bool {
	var seconds int32
	if s := e.lease.Spec.LeaseDurationSeconds; s != nil {
		seconds = *s
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.changedAt) >= time.Duration(seconds)*time.Second
}

func (e *Election) newSpec(now time.Time, transitions int32) coordinationv1.LeaseSpec {
	microTime := metav1.NewMicroTime(now)
	return coordinationv1.LeaseSpec{
		HolderIdentity: new(e.identity), LeaseDurationSeconds: new(int32(e.options.LeaseDuration / time.Second)),
		AcquireTime: new(microTime), RenewTime: new(microTime), LeaseTransitions: new(transitions),
	}
}

// createLease creates the lease. It returns false on failure.
func (e *Election) createLease(ctx context.Context) bool {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.options.ResourceNamespace, Name: e.options.ResourceName},
		Spec:       e.newSpec(time.Now(), 0),
	}
	created, err := e.leases.Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		e.logFailure(ctx, "create", err)
		return false
	}
	e.recordLease(created)
	return true
}

// takeOrRenew writes a lease that makes this replica the holder. previous is the lease as last
// read.
func (e *Election) takeOrRenew(ctx context.Context, previous *coordinationv1.Lease) bool {
	var transitions int32
	if n := previous.Spec.LeaseTransitions; n != nil {
		transitions = *n
	}
	next := previous.DeepCopy()
	if holderOf(previous) == e.identity {
		next.Spec = e.newSpec(time.Now(), transitions)
		next.Spec.AcquireTime = previous.Spec.AcquireTime
	} else {
		next.Spec = e.newSpec(time.Now(), transitions+1)
	}
	return e.updateLease(ctx, "update", next)
}

// releaseLease clears the holder of the lease if this replica holds it, so that another replica
// takes over at once.
func (e *Election) releaseLease(ctx context.Context) {
	if e.lease == nil || holderOf(e.lease) != e.identity {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.RenewDeadline)
	defer cancel()
	next := e.lease.DeepCopy()
	next.Spec = e.newSpec(time.Now(), 0)
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds = new(""), new(int32(1))
	next.Spec.LeaseTransitions = e.lease.Spec.LeaseTransitions
	e.updateLease(ctx, "release", next)
}

// updateLease writes the lease. It returns false on failure. verb names the purpose in the log.
func (e *Election) updateLease(ctx context.Context, verb string, next *coordinationv1.Lease) bool {
	updated, err := e.leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		e.logFailure(ctx, verb, err)
		return false
	}
	e.recordLease(updated)
	return true
}

// logFailure logs a failed request, except for conflicts, which mean that another candidate was
// faster.
func (e *Election) logFailure(ctx context.Context, verb string, err error) {
	if ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		e.log.Warn("lease request failed; retrying", "request", verb, "error", err)
	}
}

// recordLease records the lease, and the time if it has changed.
func (e *Election) recordLease(lease *coordinationv1.Lease) {
	changed := e.lease == nil || !equality.Semantic.DeepEqual(e.lease.Spec, lease.Spec)
	e.lease = lease
	holder := holderOf(lease)
	e.mu.Lock()
	e.holder = holder
	if changed {
		e.changedAt = time.Now()
	}
	unchanged := e.leader == holder
	if holder != "" { // otherwise it is released, and the next leader will be reported
		e.leader = holder
	}
	e.mu.Unlock()
	switch {
	case unchanged || holder == "":
	case holder == e.identity:
		e.log.Info("became leader", "identity", holder)
	default:
		e.log.Debug("leader", "identity", holder)
	}
}

func holderOf(lease *coordinationv1.Lease) string {
	if h := lease.Spec.HolderIdentity; h != nil {
		return *h
	}
	return ""
}

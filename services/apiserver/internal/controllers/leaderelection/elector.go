package leaderelection

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// Durations of the controller's own Lease. They are the defaults of Kubernetes' controllers.
const (
	leaseDuration      = 15 * time.Second
	renewDeadline      = 10 * time.Second // a holder that cannot renew the Lease for this long stops
	defaultRetryPeriod = 2 * time.Second
	releaseTimeout     = 2 * time.Second
)

// elector competes with the electors of other replicas for a Lease, without coordination by the
// server. Only the holder works. A replica that loses the Lease stops its work and competes again.
type elector struct {
	Config
	key namespacedName
	// seenVersion is the resource version of the Lease that was read last, and seenAt the time, by
	// this replica's clock, at which it was first read. The holder loses the Lease when seenAt is
	// too old, so clocks of other replicas do not matter.
	seenVersion string
	seenAt      time.Time
}

// run calls work whenever this replica has acquired the Lease, until ctx is canceled.
func (e *elector) run(ctx context.Context, work func(context.Context)) error {
	for {
		if held, _ := e.tryAcquireOrRenew(ctx); held {
			e.runAsLeader(ctx, work)
		}
		select {
		case <-time.After(e.RetryPeriod):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// runAsLeader runs work and renews the Lease. When it cannot renew the Lease, it cancels the
// context of work. It releases the Lease only after work has returned, so that two replicas never
// work at the same time.
func (e *elector) runAsLeader(ctx context.Context, work func(context.Context)) {
	e.Logger.Info("acquired the leader election lease", "lease", e.key.String())
	workCtx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := task.Protect(func() error { work(workCtx); return nil }); err != nil {
			e.Logger.Error("failed to elect leaders; restarting", "error", err)
		}
	}()
	defer func() {
		stop()
		<-done
		e.release(ctx)
	}()
	tick := time.NewTicker(e.RetryPeriod)
	defer tick.Stop()
	for renewed := time.Now(); time.Since(renewed) < renewDeadline; {
		select {
		case <-tick.C:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
		tryCtx, cancel := context.WithTimeout(ctx, renewDeadline/2)
		held, lost := e.tryAcquireOrRenew(tryCtx)
		cancel()
		if lost {
			break
		}
		if held {
			renewed = time.Now()
		}
	}
	e.Logger.Warn("lost the leader election lease", "lease", e.key.String())
}

// tryAcquireOrRenew tries to acquire or renew the Lease. held reports success. lost reports that
// another replica holds the Lease. If both are false, a read or write has failed, and the state is
// unknown.
func (e *elector) tryAcquireOrRenew(ctx context.Context) (held, lost bool) {
	// 1. Read the Lease, or create it.
	var lease coordinationv1.Lease
	err := e.API.Get(ctx, e.key.leaseRef(), &lease)
	now := metav1.MicroTime{Time: e.Now()}
	seconds := int32(leaseDuration / time.Second)
	if apierrors.IsNotFound(err) {
		lease = coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.key.namespace, Name: e.key.name}}
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity:       &e.Identity,
			LeaseDurationSeconds: &seconds,
			AcquireTime:          &now,
			RenewTime:            &now,
			LeaseTransitions:     new(int32),
		}
		err := e.API.Create(ctx, internalclient.Collection(group, "v1", leases, e.key.namespace), &lease)
		return err == nil, false
	}
	if err != nil {
		return false, false
	}

	// 2. Take it over if it is free or expired.
	if lease.ResourceVersion != e.seenVersion {
		e.seenVersion = lease.ResourceVersion
		e.seenAt = time.Now()
	}
	if holder := valueOf(lease.Spec.HolderIdentity); holder != e.Identity {
		if holder != "" && time.Since(e.seenAt) < e.durationOf(&lease) {
			return false, true
		}
		transitions := int32(1)
		if previous := lease.Spec.LeaseTransitions; previous != nil {
			transitions += *previous
		}
		lease.Spec.AcquireTime = &now
		lease.Spec.LeaseTransitions = &transitions
	}

	// 3. Renew it.
	lease.Spec.HolderIdentity = &e.Identity
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &now
	err = e.API.Update(ctx, e.key.leaseRef(), &lease, nil)
	return err == nil, false
}

// durationOf returns how long a holder keeps the Lease after it last wrote it.
func (e *elector) durationOf(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.LeaseDurationSeconds == nil {
		return leaseDuration
	}
	return time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
}

// release releases the Lease if this replica holds it, so that another replica can acquire it
// immediately.
func (e *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	var lease coordinationv1.Lease
	if err := e.API.Get(ctx, e.key.leaseRef(), &lease); err != nil || valueOf(lease.Spec.HolderIdentity) != e.Identity {
		return
	}
	second := int32(1)
	lease.Spec.HolderIdentity = nil
	lease.Spec.LeaseDurationSeconds = &second
	if err := e.API.Update(ctx, e.key.leaseRef(), &lease, nil); err != nil {
		e.Logger.Warn("failed to release the leader election lease; another replica acquires it when it expires", "error", err)
	}
}

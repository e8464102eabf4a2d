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

// Durations of the controller's Lease, as of Kubernetes' controllers.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second // a holder that cannot renew for this long stops
	retryPeriod   = 2 * time.Second
)

// elector competes for a plain Lease whose holder does the work. A replica that loses the Lease
// ends its work and competes again.
type elector struct {
	Config
	key namespacedName

	// The last seen version of the Lease, and when it was seen by the clock of this replica. Clocks
	// of other replicas are not trusted.
	seenVersion string
	seenAt      time.Time
}

// run calls work whenever this replica holds the Lease, until ctx ends.
func (o *elector) run(ctx context.Context, work func(context.Context)) error {
	for {
		if held, _ := o.tryAcquireOrRenew(ctx); held {
			o.lead(ctx, work)
		}
		select {
		case <-time.After(retryPeriod):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lead runs work as long as the Lease is renewed. It releases the Lease only after work has ended,
// so that no two replicas work at once.
func (o *elector) lead(ctx context.Context, work func(context.Context)) {
	o.Logger.Info("acquired the leader election lease", "lease", o.key.String())
	working, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := task.Protect(func() error { work(working); return nil }); err != nil {
			o.Logger.Error("failed to elect leaders; restarting", "error", err)
		}
	}()
	defer func() {
		stop()
		<-ended
		o.release(ctx)
	}()
	tick := time.NewTicker(retryPeriod)
	defer tick.Stop()
	for renewed := time.Now(); time.Since(renewed) < renewDeadline; {
		select {
		case <-tick.C:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
		trying, cancel := context.WithTimeout(ctx, renewDeadline/2)
		held, lost := o.tryAcquireOrRenew(trying)
		cancel()
		if lost {
			break
		}
		if held {
			renewed = time.Now()
		}
	}
	o.Logger.Warn("lost the leader election lease", "lease", o.key.String())
}

// tryAcquireOrRenew acquires or renews the Lease. lost reports that another replica holds it. Both
// results are false if the state is unknown.
func (o *elector) tryAcquireOrRenew(ctx context.Context) (held, lost bool) {
	var l coordinationv1.Lease
	err := o.API.Get(ctx, o.key.lease(), &l)
	now := metav1.MicroTime{Time: o.Now()}
	seconds := int32(leaseDuration / time.Second)
	if apierrors.IsNotFound(err) {
		l = coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.key.namespace, Name: o.key.name}}
		l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &o.Identity, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32)}
		return o.API.Create(ctx, internalclient.Collection(group, "v1", leases, o.key.namespace), &l) == nil, false
	}
	if err != nil {
		return false, false
	}
	if l.ResourceVersion != o.seenVersion {
		o.seenVersion, o.seenAt = l.ResourceVersion, time.Now()
	}
	if holder := valueOf(l.Spec.HolderIdentity); holder != o.Identity {
		if holder != "" && time.Since(o.seenAt) < o.durationOf(&l) {
			return false, true
		}
		transitions := int32(1)
		if was := l.Spec.LeaseTransitions; was != nil {
			transitions += *was
		}
		l.Spec.AcquireTime = &now
		l.Spec.LeaseTransitions = &transitions
	}
	l.Spec.HolderIdentity = &o.Identity
	l.Spec.LeaseDurationSeconds = &seconds
	l.Spec.RenewTime = &now
	return o.API.Update(ctx, o.key.lease(), &l, nil) == nil, false
}

// durationOf returns how long after a change of the Lease its holder keeps it.
func (o *elector) durationOf(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return leaseDuration
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// release releases the Lease if this replica holds it, so that another replica takes over
// immediately.
func (o *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryPeriod)
	defer cancel()
	var l coordinationv1.Lease
	if err := o.API.Get(ctx, o.key.lease(), &l); err != nil || valueOf(l.Spec.HolderIdentity) != o.Identity {
		return
	}
	second := int32(1)
	l.Spec.HolderIdentity = nil
	l.Spec.LeaseDurationSeconds = &second
	if err := o.API.Update(ctx, o.key.lease(), &l, nil); err != nil {
		o.Logger.Warn("failed to release the leader election lease; another replica acquires it when it expires", "error", err)
	}
}

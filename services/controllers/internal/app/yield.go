package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// managerLease is the lease of kube-controller-manager.
	managerLease = "kube-controller-manager"
	// yieldPeriod is the interval at which the lease is read.
	yieldPeriod = 2 * time.Second
	// yieldTimeout bounds one read of the lease.
	yieldTimeout = 10 * time.Second
)

// leaseReader reads the leases of a namespace.
type leaseReader interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
}

// yieldingRunner runs work except while another process holds a lease.
type yieldingRunner struct {
	leases leaseReader
	name   string
	log    *slog.Logger
}

// run runs work while no other process holds the lease. It stops work when the lease becomes held,
// and starts it again afterwards. It returns when ctx ends, or with the error of work.
func (y *yieldingRunner) run(ctx context.Context, work func(context.Context) error) error {
	var observation leaseObservation
	for ctx.Err() == nil {
		held, err := y.leaseHeld(ctx, &observation)
		switch {
		case err != nil:
			y.log.Warn("failed to read the lease of another controller manager; retrying", "lease", y.name, "error", err)
		case held:
			y.log.Info("stepping aside for another controller manager", "lease", y.name, "holder", observation.holder)
			if err := y.waitForLease(ctx, &observation, leaseIsFree); err != nil {
				return nil
			}
			y.log.Info("the other controller manager has ended", "lease", y.name)
		default:
			if err := y.runUntilHeld(ctx, &observation, work); err != nil {
				return err
			}
		}
		sleep(ctx, yieldPeriod)
	}
	return nil
}

// runUntilHeld runs work until the lease is held.
func (y *yieldingRunner) runUntilHeld(ctx context.Context, l *leaseObservation, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		_ = y.waitForLease(ctx, l, leaseIsHeld) // ends with ctx
	}()
	err := work(ctx)
	cancel()
	<-watched
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Values of waitForLease's wantHeld.
const (
	leaseIsFree = false
	leaseIsHeld = true
)

// waitForLease returns nil when the lease is held, or no longer held if wantHeld is false. It
// returns an error only if ctx ends. While the lease cannot be read, it continues to wait.
func (y *yieldingRunner) waitForLease(ctx context.Context, l *leaseObservation, wantHeld bool) error {
	for {
		if held, err := y.leaseHeld(ctx, l); err == nil && held == wantHeld {
			return nil
		}
		if !sleep(ctx, yieldPeriod) {
			return ctx.Err()
		}
	}
}

// leaseHeld reads the lease and reports whether a process holds it.
func (y *yieldingRunner) leaseHeld(ctx context.Context, observation *leaseObservation) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, yieldTimeout)
	defer cancel()
	object, err := y.leases.Get(ctx, y.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return observation.observe(object, time.Now()), nil
}

// leaseObservation is the last observation of a lease.
type leaseObservation struct {
	holder  string
	renewed metav1.MicroTime
	// changed is when the renewal was first seen, by the own clock.
	changed time.Time
}

// observe reports whether a process holds the lease: it has a holder, and it was renewed within its
// duration. The clock of the holder may differ. So the duration begins when a renewal is first
// seen, as in leader election.
func (l *leaseObservation) observe(lease *coordinationv1.Lease, now time.Time) bool {
	var renewed metav1.MicroTime
	if lease.Spec.RenewTime != nil {
		renewed = *lease.Spec.RenewTime
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	if holder != l.holder || !renewed.Equal(&l.renewed) || l.changed.IsZero() {
		l.holder = holder
		l.renewed = renewed
		l.changed = now
	}
	if holder == "" || lease.Spec.LeaseDurationSeconds == nil {
		return false
	}
	return now.Sub(l.changed) < time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second
}

// sleep waits. It returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

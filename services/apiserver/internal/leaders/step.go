package leaders

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

	"binnacle/services/apiserver/internal/loopback"
)

// step does what is due for one lease and those who stand for it, and tells when to look
// again at the latest if nothing changes; never, if it is zero.
func (c *chooser) step(ctx context.Context, at place) (next time.Time, err error) {
	now := c.Now()
	all := slices.SortedFunc(maps.Values(c.standing[at]), order)
	if len(all) == 0 {
		return time.Time{}, nil
	}
	next = now.Add(relisting)
	if all, err = c.tidy(ctx, all, now); err != nil {
		return now.Add(patience), err
	}
	all = slices.DeleteFunc(all, func(c *candidate) bool { return c.heard.IsZero() })
	if len(all) == 0 || at == officeLease() || len(validation.IsDNS1123Subdomain(at.name)) > 0 {
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

// tidy removes candidates that are forgotten, and has those asked that will be soon, or that
// were asked by a clock that is ahead. It returns the others.
func (c *chooser) tidy(ctx context.Context, all []*candidate, now time.Time) (kept []*candidate, err error) {
	done := 0
	for _, one := range all {
		old := one.forgotten(now)
		if !old {
			kept = append(kept, one)
		}
		// Whoever lives says so before it would be forgotten.
		stale := one.heard.Add(validity/2).Before(now) && !one.unanswered() && !one.heard.IsZero()
		if done == limit || !old && !stale && !one.misled(now) {
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

// forget removes a candidate, unless it has just said that it is there.
func (c *chooser) forget(ctx context.Context, one *candidate) error {
	only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &one.UID, ResourceVersion: &one.ResourceVersion}}
	at := place{one.Namespace, one.Name}
	if err := c.API.Delete(ctx, at.candidate(), only); err != nil && !changed(err) {
		return fmt.Errorf("candidate %s: %w", at, err)
	}
	return nil
}

// ping asks a candidate whether it is there.
func (c *chooser) ping(ctx context.Context, one *candidate, now time.Time) error {
	asked := one.DeepCopy()
	asked.Spec.PingTime = &metav1.MicroTime{Time: one.question(now)}
	at := place{one.Namespace, one.Name}
	if err := c.API.Update(ctx, at.candidate(), asked, nil); err != nil && !changed(err) {
		return fmt.Errorf("candidate %s: %w", at, err)
	}
	return nil
}

// read reads the newest state of a lease; nil when there is none.
func (c *chooser) read(ctx context.Context, at place) (*coordinationv1.Lease, error) {
	var l coordinationv1.Lease
	err := c.API.Get(ctx, at.lease(), &l)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &l, err
}

// vacant tells whether nobody holds a lease.
func vacant(l *coordinationv1.Lease, now time.Time) bool {
	return l == nil || text(l.Spec.HolderIdentity) == "" || !expiry(l).After(now)
}

func expiry(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
}

// electionDue tells whether a lease needs somebody chosen; otherwise when that may be.
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
		// Whose strategy it is chooses; the lease only says so.
		return l == nil || text(l.Spec.Strategy) != string(strategy), next, nil
	}
	if vacant(l, now) {
		return true, next, nil
	}
	if at := expiry(l); at.Before(next) {
		next = at
	}
	chosen := best(heard)
	return chosen != nil && preferred(l, chosen) != text(l.Spec.PreferredHolder), next, nil
}

// preferred is whom the holder of a lease has to make way for; empty for nobody.
func preferred(l *coordinationv1.Lease, chosen *candidate) string {
	if text(l.Spec.HolderIdentity) == chosen.Name {
		return ""
	}
	return chosen.Name
}

// ask asks the candidates that have not just said that they are there. It tells until
// when to wait for answers; zero when there is nothing to wait for.
func (c *chooser) ask(ctx context.Context, all []*candidate, now time.Time) (until time.Time, err error) {
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

// changed tells that somebody else wrote an object, of which the next step is told.
func changed(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// outcome is what a lease has to say, chosen from those who are there; nil when it says so
// already. Who holds it is not deprived of it: it is told to make way, and does.
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
		return nil, nil // none of them says its versions
	case chosen == nil:
	case vacant(l, now):
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

// write writes a lease that nobody has changed since it was read.
func (c *chooser) write(ctx context.Context, at place, l *coordinationv1.Lease, spec *coordinationv1.LeaseSpec) (err error) {
	if l == nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: at.name}, Spec: *spec}
		err = c.API.Create(ctx, loopback.Of(group, "v1", leases, at.namespace), l)
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

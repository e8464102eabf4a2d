package leaderelection

import (
	"cmp"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// candidate is a candidate for a lease. A candidate reports that it is alive by writing renewTime
// in its LeaseCandidate. The server pings a candidate by writing pingTime; a candidate that sees a
// pingTime after its renewTime reports immediately.
type candidate struct {
	*coordinationv1beta1.LeaseCandidate
	emulation, binary *version.Version // nil if invalid
	// lastSeen is when the candidate last reported, and pingedAt when it was last pinged, both by
	// this server's clock. Zero means never. If a written time is ahead of the clock, the time at
	// which this server first saw it counts.
	lastSeen, pingedAt time.Time
}

// newCandidate returns the state of a candidate. previous is its previous state, or nil.
func newCandidate(leaseCandidate *coordinationv1beta1.LeaseCandidate, previous *candidate, now time.Time) *candidate {
	next := &candidate{
		LeaseCandidate: leaseCandidate,
		emulation:      parseVersion(leaseCandidate.Spec.EmulationVersion),
		binary:         parseVersion(leaseCandidate.Spec.BinaryVersion),
		lastSeen:       clampToNow(leaseCandidate.Spec.RenewTime, now),
		pingedAt:       clampToNow(leaseCandidate.Spec.PingTime, now),
	}
	if previous == nil || previous.UID != leaseCandidate.UID {
		return next
	}
	if previous.Spec.RenewTime.Equal(leaseCandidate.Spec.RenewTime) {
		next.lastSeen = previous.lastSeen
	}
	if previous.Spec.PingTime.Equal(leaseCandidate.Spec.PingTime) {
		next.pingedAt = previous.pingedAt
	}
	return next
}

// clampToNow returns the earlier of instant and now, or the zero time if instant is nil.
func clampToNow(instant *metav1.MicroTime, now time.Time) time.Time {
	switch {
	case instant == nil:
		return time.Time{}
	case instant.After(now):
		return now
	}
	return instant.Time
}

// Durations of an election, as in Kubernetes.
const (
	// pingTimeout is how long a candidate may take to report after a ping, and how long after a
	// report the candidate counts as alive.
	pingTimeout = 5 * time.Second
	// candidateValidity is the time after the last report at which a candidate is deleted.
	candidateValidity = 30 * time.Minute
	// firstLeaseDuration is the duration of the Lease that the server writes for the elected
	// candidate, until the candidate renews it.
	firstLeaseDuration = 5 * time.Second
)

// maxCandidates bounds the work for one lease, so that a lease with many candidates does not delay
// other leases. One evaluation writes or deletes at most that many candidates, and one election
// considers only the best ones up to that number.
const maxCandidates = 100

// isExpired reports whether a candidate must be deleted, because candidateValidity has passed since
// its last report, or since its creation if it has never reported.
func (c *candidate) isExpired(now time.Time) bool {
	since := c.lastSeen
	if since.IsZero() {
		since = c.CreationTimestamp.Time
	}
	return since.Add(candidateValidity).Before(now)
}

// isPingPending reports whether a candidate has not reported since its last ping.
func (c *candidate) isPingPending() bool { return c.lastSeen.Before(c.pingedAt) }

// isUnresponsive reports whether a candidate has not reported within pingTimeout after a ping. It
// is not pinged again. It takes part in elections again as soon as it reports.
func (c *candidate) isUnresponsive(now time.Time) bool {
	return c.isPingPending() && !c.pingedAt.Add(pingTimeout).After(now)
}

// isAlive reports whether a candidate has reported within pingTimeout.
func (c *candidate) isAlive(now time.Time) bool {
	return !c.lastSeen.IsZero() && c.lastSeen.Add(pingTimeout).After(now)
}

// nextPingTime returns the pingTime for a ping now. It is after the candidate's renewTime, even if
// the candidate's clock is ahead, because the candidate would ignore an earlier one.
func (c *candidate) nextPingTime(now time.Time) time.Time {
	if lastReport := c.Spec.RenewTime; lastReport != nil && !lastReport.Before(&metav1.MicroTime{Time: now}) {
		return lastReport.Add(time.Microsecond)
	}
	return now
}

// pingedInFuture reports whether the candidate's pingTime is in the future, because another server
// whose clock is ahead has written it. Until that time, the candidate would report again and again.
func (c *candidate) pingedInFuture(now time.Time) bool {
	return c.Spec.PingTime != nil && c.Spec.PingTime.After(c.nextPingTime(now).Add(pingTimeout))
}

// strategyOf returns the strategy of the candidates with the newest binary version. If these do not
// agree, it returns an error, and no candidate is elected until they do. all must not be empty.
func strategyOf(all []*candidate) (coordinationv1.CoordinatedLeaseStrategy, error) {
	newest := all[0]
	var conflicting *candidate // as new as newest, but with another strategy
	for _, candidate := range all[1:] {
		difference := compareVersions(candidate.binary, newest.binary)
		switch {
		case difference > 0:
			newest = candidate
			conflicting = nil
		case difference == 0 && candidate.Spec.Strategy != newest.Spec.Strategy:
			conflicting = candidate
		}
	}
	if conflicting != nil {
		return "", fmt.Errorf("candidates %q and %q have the same binary version and want different strategies, %s and %s",
			newest.Name, conflicting.Name, newest.Spec.Strategy, conflicting.Spec.Strategy)
	}
	return newest.Spec.Strategy, nil
}

// bestCandidate returns the candidate that the strategy OldestEmulationVersion elects: the first
// one in the order of compareCandidates. It returns nil if no candidate has valid versions.
func bestCandidate(all []*candidate) (chosen *candidate) {
	for _, contender := range all {
		if !contender.hasVersions() {
			continue
		}
		if chosen == nil || compareCandidates(contender, chosen) < 0 {
			chosen = contender
		}
	}
	return chosen
}

// hasVersions reports whether both versions are valid.
func (c *candidate) hasVersions() bool { return c.emulation != nil && c.binary != nil }

// compareCandidates returns a negative number if a is better than b. A candidate with valid
// versions is better than one without. Then the older emulation version, the older binary version,
// the earlier creation and the name decide, in this order.
func compareCandidates(a, b *candidate) int {
	if a.hasVersions() != b.hasVersions() {
		if a.hasVersions() {
			return -1
		}
		return 1
	}
	return cmp.Or(
		compareVersions(a.emulation, b.emulation),
		compareVersions(a.binary, b.binary),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

// parseVersion returns a semantic version, or nil if it is invalid.
func parseVersion(text string) *version.Version {
	v, err := version.ParseSemantic(text)
	if err != nil {
		return nil
	}
	return v
}

// compareVersions returns a negative number if a is older than b. An invalid version (nil) is older
// than all valid ones.
func compareVersions(a, b *version.Version) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	case a.LessThan(b):
		return -1
	case b.LessThan(a):
		return 1
	}
	return 0
}

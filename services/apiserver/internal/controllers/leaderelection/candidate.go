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

// candidate is a candidate for a lease, with the times at which it was seen to change.
type candidate struct {
	*coordinationv1beta1.LeaseCandidate
	emulation, binary *version.Version // nil if invalid
	// lastSeen is when the candidate last renewed, pingedAt when it was last pinged. Zero means
	// never. A time that is ahead of this server's clock is replaced by the time at which this server
	// saw the write.
	lastSeen, pingedAt time.Time
}

// newCandidate returns the state of a candidate. previous is its previous state, or nil.
func newCandidate(c *coordinationv1beta1.LeaseCandidate, previous *candidate, now time.Time) *candidate {
	next := &candidate{
		LeaseCandidate: c, emulation: parseVersion(c.Spec.EmulationVersion), binary: parseVersion(c.Spec.BinaryVersion),
		lastSeen: clampToNow(c.Spec.RenewTime, now), pingedAt: clampToNow(c.Spec.PingTime, now),
	}
	if previous == nil || previous.UID != c.UID {
		return next
	}
	if previous.Spec.RenewTime.Equal(c.Spec.RenewTime) {
		next.lastSeen = previous.lastSeen
	}
	if previous.Spec.PingTime.Equal(c.Spec.PingTime) {
		next.pingedAt = previous.pingedAt
	}
	return next
}

// clampToNow returns the earlier of a written time and now.
func clampToNow(t *metav1.MicroTime, now time.Time) time.Time {
	switch {
	case t == nil:
		return time.Time{}
	case t.After(now):
		return now
	}
	return t.Time
}

// Times of an election, as in Kubernetes.
const (
	// pingTimeout is how long a pinged candidate may take to report that it is alive, and how long
	// such a report counts.
	pingTimeout = 5 * time.Second
	// candidateValidity is how long a candidate is kept without a report. Then it is deleted.
	candidateValidity = 30 * time.Minute
	// firstLeaseDuration is the duration of the lease of a chosen candidate until its first
	// renewal.
	firstLeaseDuration = 5 * time.Second
)

// maxCandidates is the maximum number of candidates of one lease that one step writes or deletes,
// and that one election considers, best ones first. It keeps a large number of candidates from
// delaying other leases.
const maxCandidates = 100

// expired reports whether a candidate is to be deleted: it has not reported within
// candidateValidity that it is alive, or, if it never reported, since its creation.
func (c *candidate) expired(now time.Time) bool {
	since := c.lastSeen
	if since.IsZero() {
		since = c.CreationTimestamp.Time
	}
	return since.Add(candidateValidity).Before(now)
}

// isPingPending reports whether a candidate has not reported since its last ping.
func (c *candidate) isPingPending() bool { return c.lastSeen.Before(c.pingedAt) }

// isUnresponsive reports whether a candidate did not reply to a ping in time. It is not pinged again,
// and counts as soon as it reports.
func (c *candidate) isUnresponsive(now time.Time) bool {
	return c.isPingPending() && !c.pingedAt.Add(pingTimeout).After(now)
}

// isAlive reports whether a candidate has reported within pingTimeout.
func (c *candidate) isAlive(now time.Time) bool {
	return !c.lastSeen.IsZero() && c.lastSeen.Add(pingTimeout).After(now)
}

// nextPingTime returns the time of a ping. A candidate replies to a ping whose time is after its last
// report, so the time is after that report even if the candidate's clock is ahead.
func (c *candidate) nextPingTime(now time.Time) time.Time {
	if lastReport := c.Spec.RenewTime; lastReport != nil && !lastReport.Before(&metav1.MicroTime{Time: now}) {
		return lastReport.Add(time.Microsecond)
	}
	return now
}

// pingedInFuture reports whether a candidate was pinged by a server whose clock is ahead. The
// candidate would continue to reply until that time.
func (c *candidate) pingedInFuture(now time.Time) bool {
	return c.Spec.PingTime != nil && c.Spec.PingTime.After(c.nextPingTime(now).Add(pingTimeout))
}

// strategyOf returns the strategy of the candidates with the newest binary version. It returns an
// error if they disagree; then none is chosen until they agree.
func strategyOf(all []*candidate) (coordinationv1.CoordinatedLeaseStrategy, error) {
	newest := all[0]
	var other *candidate
	for _, c := range all[1:] {
		difference := compareVersions(c.binary, newest.binary)
		switch {
		case difference > 0:
			newest, other = c, nil
		case difference == 0 && c.Spec.Strategy != newest.Spec.Strategy:
			other = c
		}
	}
	if other != nil {
		return "", fmt.Errorf("candidates %q and %q have the same binary version and want different strategies, %s and %s",
			newest.Name, other.Name, newest.Spec.Strategy, other.Spec.Strategy)
	}
	return newest.Spec.Strategy, nil
}

// bestCandidate returns the candidate with the oldest emulation version, then the oldest binary
// version, then the oldest creation time. It is nil if no candidate has valid versions.
func bestCandidate(all []*candidate) (chosen *candidate) {
	for _, c := range all {
		if !c.hasVersions() {
			continue
		}
		if chosen == nil || compareCandidates(c, chosen) < 0 {
			chosen = c
		}
	}
	return chosen
}

// hasVersions reports whether both versions are valid.
func (c *candidate) hasVersions() bool { return c.emulation != nil && c.binary != nil }

// compareCandidates is negative if a is better than b.
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

// compareVersions is negative if a is older than b. An invalid version is older than all valid ones.
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

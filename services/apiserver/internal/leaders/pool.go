package leaders

import (
	"cmp"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// candidate is who stands for a lease, as it was seen to change.
type candidate struct {
	*coordinationv1beta1.LeaseCandidate
	emulation, binary *version.Version // nil for what is none
	// heard is when it last said that it is there, and asked when it was asked; never, if
	// they are zero. A clock that is ahead of this server's is not believed: then it is
	// when this server saw what was written by it.
	heard, asked time.Time
}

// observed is a candidate as it is now; was is what was known of it before, nil for nothing.
func observed(c *coordinationv1beta1.LeaseCandidate, was *candidate, now time.Time) *candidate {
	seen := &candidate{
		LeaseCandidate: c, emulation: parse(c.Spec.EmulationVersion), binary: parse(c.Spec.BinaryVersion),
		heard: upTo(c.Spec.RenewTime, now), asked: upTo(c.Spec.PingTime, now),
	}
	if was == nil || was.UID != c.UID {
		return seen
	}
	if was.Spec.RenewTime.Equal(c.Spec.RenewTime) {
		seen.heard = was.heard
	}
	if was.Spec.PingTime.Equal(c.Spec.PingTime) {
		seen.asked = was.asked
	}
	return seen
}

// upTo is a time that was written, or now, if that is before.
func upTo(t *metav1.MicroTime, now time.Time) time.Time {
	switch {
	case t == nil:
		return time.Time{}
	case t.After(now):
		return now
	}
	return t.Time
}

// The times of an election, as Kubernetes has them.
const (
	// patience is how long candidates that were asked may take to say that they are
	// there, and how long it counts that somebody said so.
	patience = 5 * time.Second
	// validity is how long a candidate stands that says nothing; then it is forgotten.
	validity = 30 * time.Minute
	// term is how long somebody who was chosen may take until the first renewal.
	term = 5 * time.Second
)

// limit is how many candidates of one lease are written or deleted in one step, and how
// many are asked for one election: the best ones, so that the others of that lease, and
// other leases, do not wait for a crowd.
const limit = 100

// forgotten tells whether a candidate is of no use to anybody: it has not said within its
// validity that it is there. One that never did may do so yet.
func (c *candidate) forgotten(now time.Time) bool {
	since := c.heard
	if since.IsZero() {
		since = c.CreationTimestamp.Time
	}
	return since.Add(validity).Before(now)
}

// unanswered tells whether a candidate was asked and has not said since that it is there.
func (c *candidate) unanswered() bool { return c.heard.Before(c.asked) }

// silent tells whether a candidate did not answer in time. It is not asked again, and
// counts once it says that it is there.
func (c *candidate) silent(now time.Time) bool {
	return c.unanswered() && !c.asked.Add(patience).After(now)
}

// present tells whether a candidate has just said that it is there.
func (c *candidate) present(now time.Time) bool {
	return !c.heard.IsZero() && c.heard.Add(patience).After(now)
}

// question is the ping that asks a candidate: it answers to one that is after what it said
// last, whatever its clock was then.
func (c *candidate) question(now time.Time) time.Time {
	if said := c.Spec.RenewTime; said != nil && !said.Before(&metav1.MicroTime{Time: now}) {
		return said.Add(time.Microsecond)
	}
	return now
}

// misled tells whether a candidate was asked by a clock that is ahead. It would go on
// answering until that time has come.
func (c *candidate) misled(now time.Time) bool {
	return c.Spec.PingTime != nil && c.Spec.PingTime.After(c.question(now).Add(patience))
}

// strategyOf is what most recent binaries among the candidates want. Where they do not
// agree nobody is chosen until they do.
func strategyOf(all []*candidate) (coordinationv1.CoordinatedLeaseStrategy, error) {
	newest := all[0]
	var other *candidate
	for _, c := range all[1:] {
		switch of := compare(c.binary, newest.binary); {
		case of > 0:
			newest, other = c, nil
		case of == 0 && c.Spec.Strategy != newest.Spec.Strategy:
			other = c
		}
	}
	if other != nil {
		return "", fmt.Errorf("candidates %q and %q have the same binary version and want different strategies, %s and %s",
			newest.Name, other.Name, newest.Spec.Strategy, other.Spec.Strategy)
	}
	return newest.Spec.Strategy, nil
}

// best of the candidates is the one of the oldest emulation version, then of the oldest
// binary version, then the one that stands longest; nil when none says its versions.
func best(all []*candidate) (chosen *candidate) {
	for _, c := range all {
		if !c.saysVersions() {
			continue
		}
		if chosen == nil || order(c, chosen) < 0 {
			chosen = c
		}
	}
	return chosen
}

func (c *candidate) saysVersions() bool { return c.emulation != nil && c.binary != nil }

// order is negative when a is better than b.
func order(a, b *candidate) int {
	if a.saysVersions() != b.saysVersions() {
		if a.saysVersions() {
			return -1
		}
		return 1
	}
	return cmp.Or(
		compare(a.emulation, b.emulation),
		compare(a.binary, b.binary),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

func parse(text string) *version.Version {
	v, err := version.ParseSemantic(text)
	if err != nil {
		return nil
	}
	return v
}

// compare is negative when x is older than y. What is no version is older than all.
func compare(x, y *version.Version) int {
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return -1
	case y == nil:
		return 1
	case x.LessThan(y):
		return -1
	case y.LessThan(x):
		return 1
	}
	return 0
}

package robustness

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"binnacle/e2e/harness"
)

// clock is a replica's clock. It records when it was wrong.
type clock struct {
	*harness.Clock
	// transitions counts the changes between right and wrong. It is odd while the clock is wrong.
	transitions atomic.Int64
}

// wasWrongSince reports whether the clock was wrong at some time since it had the given number
// of transitions.
func (c *clock) wasWrongSince(transitions int64) bool {
	return transitions%2 == 1 || transitions != c.transitions.Load()
}

// The jumps. threeHours stays within the validity of the certificates, fiveYears does not.
const (
	threeHours = 3 * time.Hour
	oneMinute  = time.Minute
	fiveYears  = 5 * 365 * 24 * time.Hour
)

// clockFaults are jumps of the wall clocks of one replica or of all.
func clockFaults() []fault {
	return []fault{
		{"the publisher's clock jumps ahead", atPublisher(jumpClock(threeHours)), brief},
		{"the publisher's clock jumps back", atPublisher(jumpClock(-threeHours)), brief},
		{"the publisher's clock jumps back and forth",
			atPublisher(jumpClock(threeHours, -threeHours, oneMinute, -oneMinute)), brief},
		{"a replica's clock jumps ahead", atOtherReplica(jumpClock(threeHours)), brief},
		{"a replica's clock jumps back", atOtherReplica(jumpClock(-threeHours)), brief},
		{"a replica's clock jumps past the expiry of all certificates", atOtherReplica(jumpClock(fiveYears)), brief},
		{"a replica's clock jumps back before the validity of all certificates", atOtherReplica(jumpClock(-fiveYears)), brief},
		{"a replica is started with a clock that is ahead", atOtherReplica(startWithClock(threeHours)), brief},
		{"a replica is started with a clock that is behind", atOtherReplica(startWithClock(-threeHours)), brief},
		{"all clocks jump apart", jumpClocksApart, brief},
		{"all links are cut after a replica's clock jumps back", atOtherReplica(cutLinksAfterJump(-threeHours)), brief},
	}
}

// jumpClock returns a fault that makes the clock of a replica jump from one offset to the next.
func jumpClock(offsets ...time.Duration) func(*Cluster, *replica) func() {
	return func(cluster *Cluster, r *replica) func() {
		cluster.t.Helper()
		r.clock.transitions.Add(1)
		for _, ahead := range offsets {
			cluster.setClock(r, ahead)
		}
		return func() {
			cluster.setClock(r, 0)
			r.clock.transitions.Add(1)
		}
	}
}

// startWithClock returns a fault that restarts a replica with another clock offset.
func startWithClock(ahead time.Duration) func(*Cluster, *replica) func() {
	return func(cluster *Cluster, r *replica) func() {
		cluster.t.Helper()
		start := killProcess(r)
		r.clock.transitions.Add(1)
		r.clock.Set(ahead)
		start()
		cluster.awaitClock(r, ahead)
		return func() {
			cluster.setClock(r, 0)
			r.clock.transitions.Add(1)
		}
	}
}

// jumpClocksApart gives each replica's clock another offset.
func jumpClocksApart(cluster *Cluster) func() {
	cluster.t.Helper()
	var repairs []func()
	for i, ahead := range []time.Duration{threeHours, -threeHours, oneMinute} {
		repairs = append(repairs, jumpClock(ahead)(cluster, cluster.replicas[i]))
	}
	return func() {
		for _, repair := range repairs {
			repair()
		}
	}
}

// cutLinksAfterJump returns a fault that disconnects a replica after its clock has jumped, so that
// its last message seems new.
func cutLinksAfterJump(ahead time.Duration) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() {
		c.t.Helper()
		repair := jumpClock(ahead)(c, r)
		join := c.setTraffic(harness.Stall, slices.Concat(r.toNATS, r.toEtcd)...)
		return func() {
			join()
			repair()
		}
	}
}

// setClock sets the offset of a replica's clock and waits until it has taken effect.
func (c *Cluster) setClock(r *replica, ahead time.Duration) {
	c.t.Helper()
	r.clock.Set(ahead)
	c.awaitClock(r, ahead)
}

// errClockOffset reports that a replica does not have the wanted time.
var errClockOffset = errors.New("the replica has another time")

// awaitClock waits until a replica's responses carry the offset time.
func (c *Cluster) awaitClock(r *replica, ahead time.Duration) {
	c.t.Helper()
	harness.Eventually(c.t, waitTimeout, fmt.Sprintf("a clock offset of %s", ahead), func() error {
		resp, err := r.anonymous.Get(r.URL + "/version")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			return err
		}
		// A response may take seconds on a busy machine.
		if off := time.Until(date) - ahead; off.Abs() > oneMinute/2 {
			return fmt.Errorf("%w: it differs by %s", errClockOffset, off)
		}
		return nil
	})
}

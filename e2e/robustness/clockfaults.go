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

// mayHaveBeenWrong reports whether the clock was wrong at some time since it had the given number
// of transitions.
func (c *clock) mayHaveBeenWrong(transitions int64) bool {
	return transitions%2 == 1 || transitions != c.transitions.Load()
}

// The jumps: hours stay within the validity of the certificates, years do not.
const (
	hours  = 3 * time.Hour
	minute = time.Minute
	years  = 5 * 365 * 24 * time.Hour
)

// clockFaults are jumps of the wall clocks of one replica or of all.
func clockFaults() []fault {
	return []fault{
		{"the publisher's clock jumps ahead", onPublisher(jump(hours)), brief},
		{"the publisher's clock jumps back", onPublisher(jump(-hours)), brief},
		{"the publisher's clock jumps back and forth", onPublisher(jump(hours, -hours, minute, -minute)), brief},
		{"a replica's clock jumps ahead", onOther(jump(hours)), brief},
		{"a replica's clock jumps back", onOther(jump(-hours)), brief},
		{"a replica's clock jumps past the expiry of all certificates", onOther(jump(years)), brief},
		{"a replica's clock jumps back before the validity of all certificates", onOther(jump(-years)), brief},
		{"a replica is started with a clock that is ahead", onOther(startWith(hours)), brief},
		{"a replica is started with a clock that is behind", onOther(startWith(-hours)), brief},
		{"all clocks jump apart", jumpApart, brief},
		{"all links are cut after a replica's clock jumps back", onOther(cutAfter(-hours)), brief},
	}
}

// jump makes the clock of a replica jump from one offset to the next.
func jump(to ...time.Duration) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() {
		c.t.Helper()
		r.clock.transitions.Add(1)
		for _, ahead := range to {
			c.setClock(r, ahead)
		}
		return func() {
			c.setClock(r, 0)
			r.clock.transitions.Add(1)
		}
	}
}

// startWith restarts a replica with another clock offset.
func startWith(ahead time.Duration) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() {
		c.t.Helper()
		start := kill(r)
		r.clock.transitions.Add(1)
		r.clock.Set(ahead)
		start()
		c.awaitClock(r, ahead)
		return func() {
			c.setClock(r, 0)
			r.clock.transitions.Add(1)
		}
	}
}

// jumpApart gives each replica's clock another offset.
func jumpApart(c *Cluster) func() {
	c.t.Helper()
	var repairs []func()
	for i, ahead := range []time.Duration{hours, -hours, minute} {
		repairs = append(repairs, jump(ahead)(c, c.replicas[i]))
	}
	return func() {
		for _, repair := range repairs {
			repair()
		}
	}
}

// cutAfter disconnects a replica after its clock has jumped, so that its last message seems new.
func cutAfter(ahead time.Duration) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() {
		c.t.Helper()
		repair := jump(ahead)(c, r)
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
		if off := time.Until(date) - ahead; off.Abs() > minute/2 {
			return fmt.Errorf("%w: it differs by %s", errClockOffset, off)
		}
		return nil
	})
}

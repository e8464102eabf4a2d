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

// clock is a replica's, and knows when it is not to be believed.
type clock struct {
	*harness.Clock
	// turns counts how often it began to be wrong and was right again: odd while it is wrong.
	turns atomic.Int64
}

// doubtful tells whether it may have been wrong since turns were so many.
func (c *clock) doubtful(turns int64) bool { return turns%2 == 1 || turns != c.turns.Load() }

// The jumps: within what certificates are good for, and beyond.
const (
	hours  = 3 * time.Hour
	minute = time.Minute
	years  = 5 * 365 * 24 * time.Hour
)

// clockFaults are wall clocks that jump, of one replica and of all.
func clockFaults() []fault {
	return []fault{
		{"the publisher's clock jumps ahead", onPublisher(jump(hours)), brief},
		{"the publisher's clock jumps back", onPublisher(jump(-hours)), brief},
		{"the publisher's clock jumps to and fro", onPublisher(jump(hours, -hours, minute, -minute)), brief},
		{"a replica's clock jumps ahead", onOther(jump(hours)), brief},
		{"a replica's clock jumps back", onOther(jump(-hours)), brief},
		{"a replica's clock jumps ahead of all certificates", onOther(jump(years)), brief},
		{"a replica's clock jumps back behind all certificates", onOther(jump(-years)), brief},
		{"a replica is started with a clock that is ahead", onOther(startWith(hours)), brief},
		{"a replica is started with a clock that is behind", onOther(startWith(-hours)), brief},
		{"all clocks jump apart", jumpApart, brief},
		{"all links are cut after a replica's clock jumps back", onOther(cutAfter(-hours)), brief},
	}
}

// jump lets the clock of a replica jump from one error to the next.
func jump(to ...time.Duration) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() {
		c.t.Helper()
		r.clock.turns.Add(1)
		for _, ahead := range to {
			c.setClock(r, ahead)
		}
		return func() {
			c.setClock(r, 0)
			r.clock.turns.Add(1)
		}
	}
}

// startWith starts a replica again whose clock has jumped meanwhile.
func startWith(ahead time.Duration) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() {
		c.t.Helper()
		start := kill(r)
		r.clock.turns.Add(1)
		r.clock.Set(ahead)
		start()
		c.awaitClock(r, ahead)
		return func() {
			c.setClock(r, 0)
			r.clock.turns.Add(1)
		}
	}
}

// jumpApart lets one clock jump ahead, one back, and one by little.
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

// cutAfter cuts a replica off whose clock has jumped: what it heard last seems new.
func cutAfter(ahead time.Duration) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() {
		c.t.Helper()
		repair := jump(ahead)(c, r)
		join := c.cut(harness.Stall, slices.Concat(r.toNATS, r.toEtcd)...)
		return func() {
			join()
			repair()
		}
	}
}

func (c *Cluster) setClock(r *replica, ahead time.Duration) {
	c.t.Helper()
	r.clock.Set(ahead)
	c.awaitClock(r, ahead)
}

var errOtherTime = errors.New("it has another time")

// awaitClock waits until a replica's answers have the time that was set.
func (c *Cluster) awaitClock(r *replica, ahead time.Duration) {
	c.t.Helper()
	harness.Eventually(c.t, patience, fmt.Sprintf("a clock that is ahead by %s", ahead), func() error {
		resp, err := r.anybody.Get(r.URL + "/version")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		says, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			return err
		}
		// On a machine that is busy an answer takes seconds.
		if off := time.Until(says) - ahead; off.Abs() > minute/2 {
			return fmt.Errorf("%w, %s away", errOtherTime, off)
		}
		return nil
	})
}

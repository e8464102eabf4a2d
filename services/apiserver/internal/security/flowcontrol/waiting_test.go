package flowcontrol_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// pendingRequest is a request of a test. request is nil until it runs.
type pendingRequest struct {
	request   *flowcontrol.Request
	done      chan struct{} // closed when the request runs or has failed
	cancel    context.CancelFunc
	suspended bool
	resumed   bool // resumes, and is not listed in the dump without queues
}

// dumpRow is a line of DumpRequests.
type dumpRow struct {
	name, level, flow      string
	queue, position, seats int
	runs                   bool
}

// dumpRows returns the running and waiting requests in the dump of the controller.
func (f *fixture) dumpRows(t *rapid.T) (rows []dumpRow) {
	var b bytes.Buffer
	if err := f.DumpRequests(&b, true); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n")[1:] {
		cells := strings.Split(line, ",")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		number := func(i int) int { // of a column
			v, err := strconv.Atoi(cells[i])
			if err != nil {
				t.Fatalf("%s: got %v, want no error", line, err)
			}
			return v
		}
		rows = append(rows, dumpRow{
			name:     cells[14],
			level:    cells[0],
			flow:     cells[4],
			queue:    number(2),
			position: number(3),
			seats:    max(number(6), number(7)),
			runs:     !strings.HasPrefix(cells[9], "0001-"),
		})
	}
	return rows
}

// currentLimit returns the current limit of a level.
func (r *fixture) currentLimit(t *rapid.T, level string) int {
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "apiserver_flowcontrol_current_limit_seats" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == level {
				return int(metric.GetGauge().GetValue())
			}
		}
	}
	t.Fatalf("got no limit of level %s, want one", level)
	return 0
}

// randomRequests is a controller under random operations, and its expected state.
type randomRequests struct {
	*fixture
	pending map[string]*pendingRequest
	count   int // number of started requests
	levels  map[string]*flowcontrolv1.PriorityLevelConfiguration
}

// describeBlocked describes a request that waits although it may run, or that the dump reports in
// another state. It returns "" if there is none.
func (c *randomRequests) describeBlocked(t *rapid.T) string {
	// 1. The dump must report each request that is not done as waiting.
	rows := c.dumpRows(t)
	isRunning := map[string]bool{}
	for _, row := range rows {
		isRunning[row.name] = row.runs
	}
	for name, a := range c.pending {
		runs, reported := isRunning[name]
		select {
		case <-a.done:
		default:
			if !reported && !a.resumed {
				return name + " waits and is not in the dump"
			}
			if runs {
				return name + " runs in the dump, but Acquire has not returned"
			}
		}
	}

	// 2. In each level, the next request that fits must not wait.
	for level, configuration := range c.levels {
		limit, used, waiting, running := c.currentLimit(t, level), 0, 0, 0
		hasRunning := map[string]bool{} // flows with a running request that was queued
		for _, row := range rows {
			switch {
			case row.level != level:
			case row.runs:
				used, running = used+row.seats, running+1
				hasRunning[row.flow] = hasRunning[row.flow] || row.queue >= 0
			default:
				waiting++
			}
		}
		reserve := 0
		if q := configuration.Spec.Limited.LimitResponse.Queuing; q != nil && q.HandSize < q.Queues {
			reserve = limit / 8
		}
		// Count the first requests of the queues, and those of flows without a running request.
		var first, firstOfIdle struct{ fitting, notFitting int }
		for _, row := range rows {
			if row.level != level || row.runs || row.position != 0 {
				continue
			}
			free := limit - used
			if hasRunning[row.flow] {
				free -= reserve
			}
			runsAlone := row.seats > limit && running == 0
			fits := row.seats <= free || runsAlone
			if fits {
				first.fitting++
			} else {
				first.notFitting++
			}
			switch {
			case hasRunning[row.flow]:
			case fits:
				firstOfIdle.fitting++
			default:
				firstOfIdle.notFitting++
			}
		}
		// A request that does not fit may block others, because it is next.
		levelIsIdle := waiting > 0 && running == 0
		idleFlowIsBlocked := firstOfIdle.fitting > 0 && firstOfIdle.notFitting == 0
		allAreBlocked := first.fitting > 0 && first.notFitting == 0
		if levelIsIdle || idleFlowIsBlocked || allAreBlocked {
			return fmt.Sprintf("%s: %d wait, %d run with %d seats of %d: %v", level, waiting, running, used, limit, rows)
		}
	}
	return ""
}

// awaitNoBlocked waits until no fitting request waits. Final seats are released soon.
func (c *randomRequests) awaitNoBlocked(t *rapid.T) {
	var blocked string
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(100 * time.Microsecond) {
		blocked = c.describeBlocked(t)
		if blocked == "" {
			break
		}
	}
	if blocked != "" {
		t.Fatal(blocked)
	}
	for name, a := range c.pending {
		select {
		case <-a.done:
			if a.request == nil {
				delete(c.pending, name)
			}
		default:
		}
	}
}

// startRequest starts a request with the next name, r1, r2 and so on.
func (c *randomRequests) startRequest(name, level string, w flowcontrol.Width) {
	c.count++
	ctx, cancel := context.WithCancel(context.Background())
	a := &pendingRequest{done: make(chan struct{}), cancel: cancel}
	info := *list
	info.Name = fmt.Sprintf("r%d", c.count)
	c.pending[info.Name] = a
	go func() {
		a.request, _, _ = c.Acquire(ctx, newUser(name, level), &info, func(int) flowcontrol.Width { return w })
		close(a.done)
	}()
}

// drawRequest draws an eligible request. It skips the operation if there is none.
func (c *randomRequests) drawRequest(t *rapid.T, eligible func(*pendingRequest) bool) (name string, a *pendingRequest) {
	var names []string
	for i := range c.count {
		name := fmt.Sprintf("r%d", i+1)
		if a := c.pending[name]; a != nil && eligible(a) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Skip()
	}
	name = rapid.SampledFrom(names).Draw(t, "which")
	return name, c.pending[name]
}

// hasStarted reports whether a request runs or is suspended.
func hasStarted(a *pendingRequest) bool {
	select {
	case <-a.done:
		return a.request != nil
	default:
		return false
	}
}

// reconfigure draws the settings of both levels.
func (c *randomRequests) reconfigure(t *rapid.T) {
	var schemas []*flowcontrolv1.FlowSchema
	var levels []*flowcontrolv1.PriorityLevelConfiguration
	for _, name := range []string{"l", "m"} {
		shares := rapid.Int32Range(0, 40).Draw(t, "shares")
		q := queuing{
			queues:      rapid.SampledFrom([]int32{0, 1, 4, 8, 16}).Draw(t, "queues"),
			handSize:    rapid.Int32Range(1, 5).Draw(t, "hand"),
			queueLength: 50,
		}
		l := newRejectingLevel(name, shares)
		if q.queues > 0 {
			l = newQueuingLevel(name, shares, q)
		}
		l.Spec.Limited.BorrowingLimitPercent = nil
		lendable := rapid.SampledFrom([]int32{0, 50, 100}).Draw(t, "lendable")
		l.Spec.Limited.LendablePercent = &lendable
		c.levels[name] = l
		levels, schemas = append(levels, l), append(schemas, newSchema("s-"+name, name, 100, newGroup("g-"+name)))
	}
	c.SetConfig(flowcontrol.Compile(schemas, levels))
}

// TestFittingRequestsDoNotWait checks that no request waits that may run, after each of many random
// operations that change the free seats and the demand.
func TestFittingRequestsDoNotWait(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		random := &randomRequests{
			fixture: newFixture(t, 40, newQueuingLevel("l", 15, queuing{queues: 8, handSize: 3, queueLength: 50})),
			pending: map[string]*pendingRequest{},
			levels:  map[string]*flowcontrolv1.PriorityLevelConfiguration{},
		}
		defer func() { // a failed check must not leave waiting requests
			for _, a := range random.pending {
				a.cancel()
				<-a.done
				if a.request != nil {
					random.Release(a.request)
				}
			}
		}()
		random.reconfigure(rt)
		running := func(a *pendingRequest) bool { return hasStarted(a) && !a.suspended }
		rt.Repeat(map[string]func(*rapid.T){
			"begin": func(rt *rapid.T) {
				w := flowcontrol.Width{Seats: rapid.SampledFrom([]int{1, 1, 1, 2, 5, 10}).Draw(rt, "width")}
				if rapid.IntRange(0, 5).Draw(rt, "final seats") == 0 {
					w.Final, w.AdditionalLatency = w.Seats, time.Millisecond
				}
				random.startRequest(rapid.SampledFrom([]string{"a", "a", "a", "b", "c", "d", "e"}).Draw(rt, "user"),
					rapid.SampledFrom([]string{"l", "l", "m"}).Draw(rt, "level"), w)
			},
			"end": func(rt *rapid.T) {
				name, a := random.drawRequest(rt, hasStarted)
				random.Release(a.request)
				delete(random.pending, name)
			},
			"cancel": func(rt *rapid.T) {
				_, a := random.drawRequest(rt, func(a *pendingRequest) bool { return !hasStarted(a) })
				a.cancel()
				<-a.done
			},
			"suspend": func(rt *rapid.T) {
				_, a := random.drawRequest(rt, running)
				random.Suspend(a.request)
				a.suspended = true
			},
			"resume": func(rt *rapid.T) {
				name, a := random.drawRequest(rt, func(a *pendingRequest) bool { return hasStarted(a) && a.suspended })
				ctx, cancel := context.WithCancel(context.Background())
				b := &pendingRequest{done: make(chan struct{}), cancel: cancel, resumed: true}
				random.pending[name] = b
				go func() {
					if random.Resume(ctx, a.request) == nil {
						b.request = a.request
					} else {
						random.Release(a.request)
					}
					close(b.done)
				}()
			},
			"adjust": func(rt *rapid.T) {
				random.clock.advance(time.Duration(rapid.IntRange(0, 20000).Draw(rt, "ms")) * time.Millisecond)
				random.Adjust()
			},
			"configure": random.reconfigure,
			"":          random.awaitNoBlocked,
		})
		for limit := time.Now().Add(10 * time.Second); len(random.pending) > 0; random.awaitNoBlocked(rt) {
			for name, a := range random.pending {
				if hasStarted(a) {
					random.Release(a.request)
					delete(random.pending, name)
				}
			}
			if time.Now().After(limit) {
				rt.Fatalf("got %d requests still waiting at the limit, want none", len(random.pending))
			}
		}
	})
}

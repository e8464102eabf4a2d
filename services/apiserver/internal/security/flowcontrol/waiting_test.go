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

// pendingRequest is a request of a test. began is nil until it runs.
type pendingRequest struct {
	began     *flowcontrol.Request
	done      chan struct{} // closed when the request runs or has failed
	cancel    context.CancelFunc
	suspended bool
	resumed   bool // resumes, and is not listed in the dump without queues
}

// dumpRow is a line of DumpRequests.
type dumpRow struct {
	name, level, flow   string
	queue, place, seats int
	runs                bool
}

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
		n := func(i int) int {
			v, err := strconv.Atoi(cells[i])
			if err != nil {
				t.Fatalf("%s: got %v, want no error", line, err)
			}
			return v
		}
		rows = append(rows, dumpRow{
			name:  cells[14],
			level: cells[0],
			flow:  cells[4],
			queue: n(2),
			place: n(3),
			seats: max(n(6), n(7)),
			runs:  !strings.HasPrefix(cells[9], "0001-"),
		})
	}
	return rows
}

// currentLimit returns the current limit of a level.
func (r *fixture) currentLimit(t *rapid.T, level string) int {
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_flowcontrol_current_limit_seats" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == level {
				return int(m.GetGauge().GetValue())
			}
		}
	}
	t.Fatalf("got no limit of level %s, want one", level)
	return 0
}

// randomRequests is a controller under random operations, and its expected state.
type randomRequests struct {
	*fixture
	all    map[string]*pendingRequest
	count  int
	levels map[string]*flowcontrolv1.PriorityLevelConfiguration
}

// describeBlocked describes a request that waits although it fits. It returns "" if there is none.
func (c *randomRequests) describeBlocked(t *rapid.T) string {
	rows := c.dumpRows(t)
	known := map[string]bool{}
	for _, w := range rows {
		known[w.name] = w.runs
	}
	for name, a := range c.all {
		runs, is := known[name]
		select {
		case <-a.done:
		default:
			if !is && !a.resumed || runs {
				return name + " is not reported as running"
			}
		}
	}
	for level, p := range c.levels {
		limit, used, waiting, running := c.currentLimit(t, level), 0, 0, 0
		has := map[string]bool{}
		for _, w := range rows {
			switch {
			case w.level != level:
			case w.runs:
				used, running = used+w.seats, running+1
				has[w.flow] = has[w.flow] || w.queue >= 0
			default:
				waiting++
			}
		}
		reserve := 0
		if q := p.Spec.Limited.LimitResponse.Queuing; q != nil && q.HandSize < q.Queues {
			reserve = limit / 8
		}
		var first, firstOfNone [2]int // numbers of requests that do not fit and that fit
		for _, w := range rows {
			if w.level != level || w.runs || w.place != 0 {
				continue
			}
			free, fits := limit-used, 0
			if has[w.flow] {
				free -= reserve
			}
			if w.seats <= free || w.seats > limit && running == 0 {
				fits = 1
			}
			first[fits]++
			if !has[w.flow] {
				firstOfNone[fits]++
			}
		}
		if waiting > 0 && running == 0 || firstOfNone[1] > 0 && firstOfNone[0] == 0 || first[1] > 0 && first[0] == 0 {
			return fmt.Sprintf("%s: %d wait, %d run with %d seats of %d: %v", level, waiting, running, used, limit, rows)
		}
	}
	return ""
}

// awaitNoBlocked waits until no fitting request waits. Final seats are released soon.
func (c *randomRequests) awaitNoBlocked(t *rapid.T) {
	var now string
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(100 * time.Microsecond) {
		now = c.describeBlocked(t)
		if now == "" {
			break
		}
	}
	if now != "" {
		t.Fatal(now)
	}
	for name, a := range c.all {
		select {
		case <-a.done:
			if a.began == nil {
				delete(c.all, name)
			}
		default:
		}
	}
}

func (c *randomRequests) startRequest(name, level string, w flowcontrol.Width) {
	c.count++
	ctx, cancel := context.WithCancel(context.Background())
	a := &pendingRequest{done: make(chan struct{}), cancel: cancel}
	info := *list
	info.Name = fmt.Sprintf("r%d", c.count)
	c.all[info.Name] = a
	go func() {
		a.began, _, _ = c.Acquire(ctx, newUser(name, level), &info, func(int) flowcontrol.Width { return w })
		close(a.done)
	}()
}

// drawRequest draws a request that satisfies of. It skips the operation if there is none.
func (c *randomRequests) drawRequest(t *rapid.T, of func(*pendingRequest) bool) (name string, a *pendingRequest) {
	var names []string
	for i := range c.count {
		name := fmt.Sprintf("r%d", i+1)
		if a := c.all[name]; a != nil && of(a) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Skip()
	}
	name = rapid.SampledFrom(names).Draw(t, "which")
	return name, c.all[name]
}

func hasStarted(a *pendingRequest) bool {
	select {
	case <-a.done:
		return a.began != nil
	default:
		return false
	}
}

func (c *randomRequests) reconfigure(t *rapid.T) {
	var schemas []*flowcontrolv1.FlowSchema
	var levels []*flowcontrolv1.PriorityLevelConfiguration
	for _, name := range []string{"l", "m"} {
		queues := rapid.SampledFrom([]int32{0, 1, 4, 8, 16}).Draw(t, "queues")
		l := newLevel(name, rapid.Int32Range(0, 40).Draw(t, "shares"), queues, rapid.Int32Range(1, 5).Draw(t, "hand"), 50)
		l.Spec.Limited.BorrowingLimitPercent = nil
		lendable := rapid.SampledFrom([]int32{0, 50, 100}).Draw(t, "lendable")
		l.Spec.Limited.LendablePercent = &lendable
		c.levels[name] = l
		levels, schemas = append(levels, l), append(schemas, newSchema("s-"+name, name, 100, newGroup("g-"+name)))
	}
	c.SetConfig(flowcontrol.Compile(schemas, levels))
}

// TestFittingRequestsDoNotWait checks that random operations change free seats and demand. After
// each, no fitting request waits.
func TestFittingRequestsDoNotWait(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &randomRequests{
			fixture: newFixture(t, 40, newLevel("l", 15, 8, 3, 50)),
			all:     map[string]*pendingRequest{},
			levels:  map[string]*flowcontrolv1.PriorityLevelConfiguration{},
		}
		defer func() { // a failed check must not leave waiting requests
			for _, a := range c.all {
				a.cancel()
				<-a.done
				if a.began != nil {
					c.Release(a.began)
				}
			}
		}()
		c.reconfigure(rt)
		running := func(a *pendingRequest) bool { return hasStarted(a) && !a.suspended }
		rt.Repeat(map[string]func(*rapid.T){
			"begin": func(rt *rapid.T) {
				w := flowcontrol.Width{Seats: rapid.SampledFrom([]int{1, 1, 1, 2, 5, 10}).Draw(rt, "width")}
				if rapid.IntRange(0, 5).Draw(rt, "final seats") == 0 {
					w.Final, w.AdditionalLatency = w.Seats, time.Millisecond
				}
				c.startRequest(rapid.SampledFrom([]string{"a", "a", "a", "b", "c", "d", "e"}).Draw(rt, "user"),
					rapid.SampledFrom([]string{"l", "l", "m"}).Draw(rt, "level"), w)
			},
			"end": func(rt *rapid.T) {
				name, a := c.drawRequest(rt, hasStarted)
				c.Release(a.began)
				delete(c.all, name)
			},
			"cancel": func(rt *rapid.T) {
				_, a := c.drawRequest(rt, func(a *pendingRequest) bool { return !hasStarted(a) })
				a.cancel()
				<-a.done
			},
			"suspend": func(rt *rapid.T) {
				_, a := c.drawRequest(rt, running)
				c.Suspend(a.began)
				a.suspended = true
			},
			"resume": func(rt *rapid.T) {
				name, a := c.drawRequest(rt, func(a *pendingRequest) bool { return hasStarted(a) && a.suspended })
				ctx, cancel := context.WithCancel(context.Background())
				b := &pendingRequest{done: make(chan struct{}), cancel: cancel, resumed: true}
				c.all[name] = b
				go func() {
					if c.Resume(ctx, a.began) == nil {
						b.began = a.began
					} else {
						c.Release(a.began)
					}
					close(b.done)
				}()
			},
			"adjust": func(rt *rapid.T) {
				c.clock.advance(time.Duration(rapid.IntRange(0, 20000).Draw(rt, "ms")) * time.Millisecond)
				c.Adjust()
			},
			"configure": c.reconfigure,
			"":          c.awaitNoBlocked,
		})
		for limit := time.Now().Add(10 * time.Second); len(c.all) > 0; c.awaitNoBlocked(rt) {
			for name, a := range c.all {
				if hasStarted(a) {
					c.Release(a.began)
					delete(c.all, name)
				}
			}
			if time.Now().After(limit) {
				rt.Fatalf("got %d requests still waiting at the limit, want them decided", len(c.all))
			}
		}
	})
}

package flowcontrol_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestDumpsAndMetricsDescribeLevels checks that dumps and metrics describe levels and queues.
func TestDumpsAndMetricsDescribeLevels(t *testing.T) {
	// The level l has one seat.
	fixture := newFixture(t, 2, newQueuingLevel("l", 5, queuing{queues: 1, handSize: 1, queueLength: 2}), newRejectingLevel("m", 0))
	create := *list
	create.Verb = "create"
	held, _, err := fixture.Acquire(t.Context(), newUser("a", "l"), &create, oneSeat)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := fixture.Acquire(ctx, newUser("a", "l"), list, oneSeat)
		done <- err
	}()
	fixture.awaitWaiting(1)
	cancel()
	<-done
	fixture.clock.advance(time.Second)
	fixture.Release(held)
	fixture.clock.advance(time.Second)
	dump := func(of func(*strings.Builder) error) (cells []string) {
		t.Helper()
		var b strings.Builder
		if err := of(&b); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if strings.HasPrefix(line, "l,") {
				for _, cell := range strings.Split(line, ",") {
					cells = append(cells, strings.TrimSpace(cell))
				}
			}
		}
		return cells
	}
	if c := dump(func(b *strings.Builder) error { return fixture.DumpLevels(b) }); c[8] != "0" || c[9] != "1" {
		t.Errorf("timed out and cancelled: got %q, want 0 and 1", c)
	}
	if c := dump(func(b *strings.Builder) error { return fixture.DumpQueues(b) }); c[3] != "0" || c[4] != "0" {
		t.Errorf("executing requests and seats of a queue: got %q, want 0 and 0", c)
	}
	fixture.Adjust()
	if v, is := fixture.gaugeValue("next_s_bounds", "m"); is {
		t.Errorf("got start bounds %v of a level without queues, want none", v)
	}
	for _, name := range []string{"next_s_bounds", "next_discounted_s_bounds"} {
		if low, high := fixture.metricValue(name, "min", "l"), fixture.metricValue(name, "max", "l"); low <= 0 || low != high {
			t.Errorf("%s of one queue: got %v and %v, want equal positive values", name, low, high)
		}
	}
	families, err := fixture.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "apiserver_flowcontrol_read_vs_write_current_requests" {
			for _, m := range f.GetMetric() {
				sums[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	if sums["executing mutating"] == 0 || sums["executing readOnly"] != 0 {
		t.Errorf("got %v, want only executing mutating", sums)
	}
}

// TestRecreatedLevelHasMetrics checks that a level that is removed and created again has all
// metrics.
func TestRecreatedLevelHasMetrics(t *testing.T) {
	fixture := newFixture(t, 100, newRejectingLevel("l", 95))
	mustAcquire := func() *flowcontrol.Request {
		q, _, err := fixture.Acquire(t.Context(), &request.User{Name: "a", Groups: []string{"g-l"}}, list, oneSeat)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	fixture.Release(mustAcquire())
	fixture.SetConfig(flowcontrol.Compile(nil, nil))
	setConfig(fixture, []*flowcontrolv1.FlowSchema{newSchema("s-l", "l", 100, newGroup("g-l"))}, newRejectingLevel("l", 95))
	q := mustAcquire()
	defer fixture.Release(q)
	fixture.wantGauge("current_executing_requests", "l", 1)
}

// metricValue returns the value of a gauge or the count of a histogram with the given label values,
// in the order of the label names. It returns -1 if there is no such series.
func (r *fixture) metricValue(name string, values ...string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_flowcontrol_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			got := make([]string, 0, len(values))
			for _, l := range m.GetLabel() {
				got = append(got, l.GetValue())
			}
			if slices.Equal(got, values) {
				return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

// TestWatchExecutionIsRecordedSeparately checks that the metric of execution times distinguishes
// watches from other requests.
func TestWatchExecutionIsRecordedSeparately(t *testing.T) {
	f := newFixture(t, 100, newRejectingLevel("l", 95))
	watch := *list
	watch.Verb = "watch"
	for _, info := range []*requestinfo.Info{list, &watch, list} {
		request, _, err := f.Acquire(t.Context(), newUser("a", "l"), info, oneSeat)
		if err != nil {
			t.Fatal(err)
		}
		f.Release(request)
	}
	w, n := f.metricValue("request_execution_seconds", "s-l", "l", "watch"), f.metricValue("request_execution_seconds",
		"s-l", "l", "regular")
	if w != 1 || n != 2 {
		t.Errorf("got %v watches and %v other requests, want 1 and 2", w, n)
	}
}

// TestClockGoingBackwardsCountsNoTime checks that after the clock goes backwards, no time counts
// until it reaches its former value.
func TestClockGoingBackwardsCountsNoTime(t *testing.T) {
	f := newFixture(t, 100, newRejectingLevel("l", 95))
	for _, step := range []struct{ pass, sum time.Duration }{
		{pass: time.Second, sum: time.Second},
		{pass: -time.Minute, sum: time.Second},
		{pass: time.Minute, sum: time.Second},
		{pass: time.Second, sum: 2 * time.Second},
	} {
		f.clock.advance(step.pass)
		if n := f.metricValue("demand_seats", "l"); n != float64(step.sum) {
			t.Errorf("got %v ns, want %v", n, float64(step.sum))
		}
	}
}

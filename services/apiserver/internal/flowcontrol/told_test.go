package flowcontrol_test

import (
	"context"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/flowcontrol"
	"binnacle/services/apiserver/internal/request"
)

// TestWhatIsTold of levels and their queues, by dumps and by metrics.
func TestWhatIsTold(t *testing.T) {
	r := newRig(t, 2, limited("l", 5, 1, 1, 2), limited("m", 0, 0, 0, 0)) // one seat
	create := *list
	create.Verb = "create"
	held, _, err := r.Begin(t.Context(), user("a", "l"), &create, one)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := r.Begin(ctx, user("a", "l"), list, one)
		done <- err
	}()
	r.awaitWaiting(1)
	cancel()
	<-done
	r.clock.pass(time.Second)
	r.End(held)
	r.clock.pass(time.Second)
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
	if c := dump(func(b *strings.Builder) error { return r.DumpLevels(b) }); c[8] != "0" || c[9] != "1" {
		t.Errorf("timed out and cancelled: %q", c)
	}
	if c := dump(func(b *strings.Builder) error { return r.DumpQueues(b) }); c[3] != "0" || c[4] != "0" {
		t.Errorf("what runs of a queue: %q", c)
	}
	r.Adjust()
	if low, _ := r.gauge("next_s_bounds", "l"); low <= 0 {
		t.Errorf("the next begins at %v", low)
	}
	if v, is := r.gauge("next_s_bounds", "m"); is {
		t.Errorf("a level without queues has bounds of them: %v", v)
	}
	families, err := r.reg.Gather()
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
		t.Errorf("%v", sums)
	}
}

// TestALevelThatComesBack is told of as if it had never gone.
func TestALevelThatComesBack(t *testing.T) {
	r := newRig(t, 100, limited("l", 95, 0, 0, 0))
	run := func() *flowcontrol.Request {
		q, _, err := r.Begin(t.Context(), &request.User{Name: "a", Groups: []string{"g-l"}}, list, one)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	r.End(run())
	r.Take(flowcontrol.Compile(nil, nil))
	take(r, []*flowcontrolv1.FlowSchema{schema("s-l", "l", 100, group("g-l"))}, limited("l", 95, 0, 0, 0))
	q := run()
	defer r.End(q)
	r.wantGauge("current_executing_requests", "l", 1)
}

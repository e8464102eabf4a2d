package flowcontrol_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// gauge is a metric of a level, and whether there is one.
func (r *rig) gauge(name, level string) (v float64, is bool) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_flowcontrol_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "priority_level" && l.GetValue() == level {
					return m.GetGauge().GetValue(), true
				}
			}
		}
	}
	return 0, false
}

func (r *rig) wantGauge(name, level string, want float64) {
	r.t.Helper()
	if v, _ := r.gauge(name, level); v < want-1e-6 || v > want+1e-6 {
		r.t.Errorf("%s of %s is %v, not %v", name, level, v, want)
	}
}

func (r *rig) has(level string) bool {
	r.t.Helper()
	var b strings.Builder
	if err := r.DumpLevels(&b); err != nil {
		r.t.Fatal(err)
	}
	return strings.Contains(b.String(), "\n"+level+",")
}

// TestDemand is told of as it was over time.
func TestDemand(t *testing.T) {
	r := newRig(t, 100, limited("l", 95, 0, 0, 0))
	var held []*flowcontrol.Request
	for range 4 {
		q, err := r.begin("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, q)
	}
	r.clock.pass(5 * time.Second)
	for _, q := range held {
		r.End(q)
	}
	r.clock.pass(5 * time.Second)
	r.Adjust()
	for name, want := range map[string]float64{"average": 2, "stdev": 2, "high_watermark": 4, "smoothed": 4} {
		r.wantGauge("demand_seats_"+name, "l", want)
	}
	r.Adjust() // of no time at all there is no average
	r.wantGauge("demand_seats_average", "l", 0)
}

// TestALevelThatIsGone is told of no more, nor has a part of the seats.
func TestALevelThatIsGone(t *testing.T) {
	r := newRig(t, 100, limited("l", 95, 0, 0, 0))
	q, err := r.begin("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	r.Take(flowcontrol.Compile(nil, nil))
	r.wantGauge("nominal_limit_seats", "catch-all", 5)
	r.End(q)
	r.Adjust()
	for _, name := range []string{"nominal_limit_seats", "current_limit_seats", "target_seats"} {
		if v, is := r.gauge(name, "l"); is {
			t.Errorf("%s is %v", name, v)
		}
	}
	r = newRig(t, 100, limited("l", 95, 0, 0, 0)) // of which nothing is left at once
	r.Take(flowcontrol.Compile(nil, nil))
	r.wantGauge("nominal_limit_seats", "catch-all", 100)
	if r.has("l") {
		t.Error("it is still there")
	}
}

// TestALevelStaysWhileItsWorkGoesOn, as that takes seats of the server.
func TestALevelStaysWhileItsWorkGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 100, limited("l", 95, 0, 0, 0))
		q, _, err := r.Begin(t.Context(), user("a", "l"), list, func(int) flowcontrol.Width {
			return flowcontrol.Width{Seats: 1, Final: 1, After: time.Second}
		})
		if err != nil {
			t.Fatal(err)
		}
		r.End(q)
		r.Take(flowcontrol.Compile(nil, nil))
		if !r.has("l") {
			t.Error("it is gone before its work")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if r.Adjust(); r.has("l") {
			t.Error("it is still there")
		}
	})
}

// TestExemptSeats: what an exempt level keeps is not shared, and it has no need of others'.
func TestExemptSeats(t *testing.T) {
	all, none, half := int32(100), int32(0), int32(50)
	l := limited("l", 50, 0, 0, 0)
	l.Spec.Limited.LendablePercent, l.Spec.Limited.BorrowingLimitPercent = &all, nil
	r := newRig(t, 105, l, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "exempt"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &half, LendablePercent: &none},
		},
	})
	r.Adjust() // nobody has asked for any
	r.wantGauge("current_limit_seats", "exempt", 50)
	r.wantGauge("current_limit_seats", "l", 0) // all of it is lent
	r.wantGauge("current_limit_seats", "catch-all", 55)
}

// TestDamagedLevels: the levels that have to be there are what they have to be, whatever is stored
// under their names.
func TestDamagedLevels(t *testing.T) {
	damaged := limited("exempt", 0, 0, 0, 0)
	damaged.UID = "u"
	open := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "catch-all", UID: "v"}}
	open.Spec.Type = flowcontrolv1.PriorityLevelEnablementExempt
	r := newRig(t, 1, damaged, open)
	for range 3 {
		_, class, err := r.Begin(t.Context(), &request.User{Name: "m", Groups: []string{"system:masters"}}, list, one)
		if err != nil || class.LevelUID != "u" {
			t.Errorf("an administrator: %v, %+v", err, class)
		}
	}
	q, class, err := r.Begin(t.Context(), &request.User{Name: "x"}, list, one)
	if err != nil || class.LevelUID != "v" {
		t.Fatalf("somebody: %v, %+v", err, class)
	}
	defer r.End(q)
	if _, _, err := r.Begin(t.Context(), &request.User{Name: "x"}, list, one); reason(err) != "concurrency-limit" {
		t.Errorf("more than there are: %v", err)
	}
}

// TestTheFirstConfiguration is waited for by requests and by who looks, once.
func TestTheFirstConfiguration(t *testing.T) {
	for _, look := range []bool{false, true} {
		clock, reg := newClock(), prometheus.NewRegistry()
		r := &rig{t: t, clock: clock, reg: reg}
		var asked atomic.Int32
		r.Controller = flowcontrol.New(flowcontrol.Options{
			Seats: 100, Metrics: flowcontrol.NewMetrics(reg, 1, 1, clock.Now), Now: clock.Now,
			First: func(context.Context) {
				asked.Add(1)
				r.Take(flowcontrol.Compile([]*flowcontrolv1.FlowSchema{
					schema("s", "l", 1, group("g-l")), schema("direct", "exempt", 1, group("g-direct")),
				}, []*flowcontrolv1.PriorityLevelConfiguration{limited("l", 95, 0, 0, 0)}))
			},
			Always: func(u *request.User, _ *requestinfo.Info) bool { return u.Name == "kubelet" },
		})
		if look && !r.has("l") {
			t.Error("who looks is shown what does not hold")
		}
		_, class, err := r.Begin(t.Context(), user("a", "l"), list, one)
		if err != nil || class.SchemaUID != "of-s" || asked.Load() != 1 {
			t.Errorf("%v, %+v, asked %d times", err, class, asked.Load())
		}
		// Who is let in always needs no seats, and has the class of what says so.
		for range 200 {
			if _, class, err := r.Begin(t.Context(), user("kubelet", "l"), list, one); err != nil || class.SchemaUID != "" {
				t.Fatalf("%v, %+v", err, class)
			}
		}
		if _, class, err := r.Begin(t.Context(), user("kubelet", "direct"), list, one); err != nil || class.SchemaUID != "of-direct" {
			t.Errorf("%v, %+v", err, class)
		}
		if !r.has("l") || asked.Load() != 1 {
			t.Errorf("asked %d times", asked.Load())
		}
	}
	r := &rig{t: t}
	r.Controller = flowcontrol.New(flowcontrol.Options{Seats: 100, Metrics: newMetrics()}) // nobody to ask
	if !r.has("catch-all") {
		t.Error("the mandatory levels are not there")
	}
	if _, _, err := r.Begin(t.Context(), user("a", "l"), list, one); err != nil {
		t.Error(err)
	}
}

// TestNarrowOnesAreNotRefused while there are seats for them, however many wait: what they wait for
// is one that wants more.
func TestNarrowOnesAreNotRefused(t *testing.T) {
	r := newRig(t, 10, limited("l", 45, 1, 1, 1)) // 9 seats, one may wait
	wide := func(n int) <-chan *flowcontrol.Request {
		came := make(chan *flowcontrol.Request, 1)
		go func() {
			q, _, err := r.Begin(context.Background(), user("a", "l"), list, func(int) flowcontrol.Width { return flowcontrol.Width{Seats: n} })
			if err != nil {
				t.Error(err)
			}
			came <- q
		}()
		return came
	}
	first := <-wide(5)
	second := wide(5)
	r.awaitWaiting(1)
	third := wide(1)
	r.awaitWaiting(2)
	r.End(first)
	r.End(<-second)
	r.End(<-third)
}

// TestWideOnesRunAlone: beside what others have left to be done, one that wants more than there is
// does not run.
func TestWideOnesRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 100, limited("l", 0, 0, 0, 0)) // which serves one at a time
		q, _, err := r.Begin(t.Context(), user("a", "l"), list, func(int) flowcontrol.Width {
			return flowcontrol.Width{Seats: 1, Final: 1, After: time.Second}
		})
		if err != nil {
			t.Fatal(err)
		}
		r.End(q)
		if _, err := r.begin("a", "l"); reason(err) != "concurrency-limit" {
			t.Errorf("beside work that is left: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := r.begin("a", "l"); err != nil {
			t.Error(err)
		}
	})
}

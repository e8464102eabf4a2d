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

// gaugeValue returns the value of a level's gauge and whether it exists.
func (r *fixture) gaugeValue(name, level string) (v float64, is bool) {
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
			for _, l := range m.GetLabel() {
				if l.GetName() == "priority_level" && l.GetValue() == level {
					return m.GetGauge().GetValue(), true
				}
			}
		}
	}
	return 0, false
}

func (f *fixture) wantGauge(name, level string, want float64) {
	f.t.Helper()
	if v, _ := f.gaugeValue(name, level); v < want-1e-6 || v > want+1e-6 {
		f.t.Errorf("%s of %s: got %v, want %v", name, level, v, want)
	}
}

func (f *fixture) hasLevel(level string) bool {
	f.t.Helper()
	var b strings.Builder
	if err := f.DumpLevels(&b); err != nil {
		f.t.Fatal(err)
	}
	return strings.Contains(b.String(), "\n"+level+",")
}

// TestDemandMetricsDescribeLastPeriod checks the statistics of the demand in the last period.
func TestDemandMetricsDescribeLastPeriod(t *testing.T) {
	fixture := newFixture(t, 100, newRejectingLevel("l", 95))
	var held []*flowcontrol.Request
	for range 4 {
		request, err := fixture.acquire("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, request)
	}
	fixture.clock.advance(5 * time.Second)
	for _, request := range held {
		fixture.Release(request)
	}
	fixture.clock.advance(5 * time.Second)
	fixture.Adjust()
	for name, want := range map[string]float64{"average": 2, "stdev": 2, "high_watermark": 4, "smoothed": 4} {
		fixture.wantGauge("demand_seats_"+name, "l", want)
	}
	fixture.Adjust() // an empty period has no average
	fixture.wantGauge("demand_seats_average", "l", 0)
}

// TestRemovedLevelReleasesSeatsAndMetrics checks that the seats of a removed level go to other
// levels, and that its metrics disappear.
func TestRemovedLevelReleasesSeatsAndMetrics(t *testing.T) {
	fixture := newFixture(t, 100, newRejectingLevel("l", 95))
	request, err := fixture.acquire("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	fixture.SetConfig(flowcontrol.Compile(nil, nil))
	fixture.wantGauge("nominal_limit_seats", "catch-all", 5)
	fixture.Release(request)
	fixture.Adjust()
	for _, name := range []string{"nominal_limit_seats", "current_limit_seats", "target_seats"} {
		if v, is := fixture.gaugeValue(name, "l"); is {
			t.Errorf("%s of a removed level: got %v, want false", name, v)
		}
	}
	fixture = newFixture(t, 100, newRejectingLevel("l", 95)) // idle, so it is removed at once
	fixture.SetConfig(flowcontrol.Compile(nil, nil))
	fixture.wantGauge("nominal_limit_seats", "catch-all", 100)
	if fixture.hasLevel("l") {
		t.Error("removed level after its last request: got it in the dump, want none")
	}
}

// TestRemovedLevelStaysWhileFinalSeatsAreHeld checks that a removed level exists until its final
// seats are released.
func TestRemovedLevelStaysWhileFinalSeatsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, 100, newRejectingLevel("l", 95))
		request, _, err := fixture.Acquire(t.Context(), newUser("a", "l"), list, func(int) flowcontrol.Width {
			return flowcontrol.Width{Seats: 1, Final: 1, AdditionalLatency: time.Second}
		})
		if err != nil {
			t.Fatal(err)
		}
		fixture.Release(request)
		fixture.SetConfig(flowcontrol.Compile(nil, nil))
		if !fixture.hasLevel("l") {
			t.Error("removed level with final seats: got none in the dump, want it")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		fixture.Adjust()
		if fixture.hasLevel("l") {
			t.Error("removed level after its final seats: got it in the dump, want none")
		}
	})
}

// TestExemptLevelKeepsItsSeats checks that the seats of an exempt level are not shared, and it does
// not borrow.
func TestExemptLevelKeepsItsSeats(t *testing.T) {
	all, none, half := int32(100), int32(0), int32(50)
	l := newRejectingLevel("l", 50)
	l.Spec.Limited.LendablePercent, l.Spec.Limited.BorrowingLimitPercent = &all, nil
	f := newFixture(t, 105, l, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "exempt"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &half, LendablePercent: &none},
		},
	})
	f.Adjust() // without demand
	f.wantGauge("current_limit_seats", "exempt", 50)
	f.wantGauge("current_limit_seats", "l", 0) // lends all seats
	f.wantGauge("current_limit_seats", "catch-all", 55)
}

// TestMandatoryLevelsKeepTheirType checks that the mandatory levels keep their type regardless of
// the stored objects.
func TestMandatoryLevelsKeepTheirType(t *testing.T) {
	damaged := newRejectingLevel("exempt", 0)
	damaged.UID = "u"
	open := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "catch-all", UID: "v"}}
	open.Spec.Type = flowcontrolv1.PriorityLevelEnablementExempt
	fixture := newFixture(t, 1, damaged, open)
	for range 3 {
		_, class, err := fixture.Acquire(t.Context(), &request.User{Name: "m", Groups: []string{"system:masters"}}, list, oneSeat)
		if err != nil || class.LevelUID != "u" {
			t.Errorf("administrator: got %v, %+v, want level UID u", err, class)
		}
	}
	q, class, err := fixture.Acquire(t.Context(), &request.User{Name: "x"}, list, oneSeat)
	if err != nil || class.LevelUID != "v" {
		t.Fatalf("other user: got %v, %+v, want level UID v", err, class)
	}
	defer fixture.Release(q)
	if _, _, err := fixture.Acquire(t.Context(), &request.User{Name: "x"}, list, oneSeat); rejectionReason(err) != "concurrency-limit" {
		t.Errorf("beyond the limit: got %v, want concurrency-limit", err)
	}
}

// TestFirstConfigurationIsLoadedOnce checks that the first request or dump loads the configuration,
// once.
func TestFirstConfigurationIsLoadedOnce(t *testing.T) {
	for _, dumpFirst := range []bool{false, true} {
		clock, reg := newClock(), prometheus.NewRegistry()
		controlled := &fixture{t: t, clock: clock, registry: reg}
		var loads atomic.Int32
		controlled.Controller = flowcontrol.New(flowcontrol.Options{
			Seats:   100,
			Metrics: flowcontrol.NewMetrics(reg, 1, 1, clock.Now),
			Now:     clock.Now,
			LoadConfig: func(context.Context) {
				loads.Add(1)
				controlled.SetConfig(flowcontrol.Compile([]*flowcontrolv1.FlowSchema{
					newSchema("s", "l", 1, newGroup("g-l")), newSchema("direct", "exempt", 1, newGroup("g-direct")),
				}, []*flowcontrolv1.PriorityLevelConfiguration{newRejectingLevel("l", 95)}))
			},
			IsExempt: func(u *request.User, _ *requestinfo.Info) bool { return u.Name == "kubelet" },
		})
		if dumpFirst && !controlled.hasLevel("l") {
			t.Error("dump before the first request: got no level l, want the loaded configuration")
		}
		_, class, err := controlled.Acquire(t.Context(), newUser("a", "l"), list, oneSeat)
		if err != nil || class.SchemaUID != "of-s" || loads.Load() != 1 {
			t.Errorf("got %v, %+v after %d loads, want schema of-s after 1", err, class, loads.Load())
		}
		// An exempt request needs no seats and has the class of the exempt schema.
		for range 200 {
			if _, class, err := controlled.Acquire(t.Context(), newUser("kubelet", "l"), list, oneSeat); err != nil || class.SchemaUID != "" {
				t.Fatalf("%v, %+v; want no error, \"\"", err, class)
			}
		}
		if _, class, err := controlled.Acquire(t.Context(), newUser("kubelet", "direct"), list, oneSeat); err != nil ||
			class.SchemaUID != "of-direct" {
			t.Errorf("%v, %+v; want no error, \"of-direct\"", err, class)
		}
		if !controlled.hasLevel("l") || loads.Load() != 1 {
			t.Errorf("got %d loads, want 1", loads.Load())
		}
	}
	controlled := &fixture{t: t}
	controlled.Controller = flowcontrol.New(flowcontrol.Options{Seats: 100, Metrics: newMetrics()}) // without LoadConfig
	if !controlled.hasLevel("catch-all") {
		t.Error("got no level catch-all, want the mandatory levels")
	}
	if _, _, err := controlled.Acquire(t.Context(), newUser("a", "l"), list, oneSeat); err != nil {
		t.Error(err)
	}
}

// TestWideRequestRunsAlone checks that a request that is wider than the level does not run beside
// final seats.
func TestWideRequestRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, 100, newRejectingLevel("l", 0)) // serves one request at a time
		request, _, err := fixture.Acquire(t.Context(), newUser("a", "l"), list, func(int) flowcontrol.Width {
			return flowcontrol.Width{Seats: 1, Final: 1, AdditionalLatency: time.Second}
		})
		if err != nil {
			t.Fatal(err)
		}
		fixture.Release(request)
		if _, err := fixture.acquire("a", "l"); rejectionReason(err) != "concurrency-limit" {
			t.Errorf("beside final seats: got %v, want concurrency-limit", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := fixture.acquire("a", "l"); err != nil {
			t.Error(err)
		}
	})
}

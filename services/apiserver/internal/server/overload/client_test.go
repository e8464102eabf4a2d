package overload

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// newFilters returns filters that record metrics in a new registry.
func newFilters(options Options) *Filters {
	return New(options, &telemetry.Filters{Metrics: telemetry.NewMetrics(prometheus.NewRegistry())})
}

// newFlow returns a flow control with a number of seats.
func newFlow(seats int, maxWait time.Duration) *flowcontrol.Controller {
	return flowcontrol.New(flowcontrol.Options{
		Seats:   seats,
		MaxWait: maxWait,
		Metrics: flowcontrol.NewMetrics(prometheus.NewRegistry(), 10, 10, time.Now),
	})
}

// oneSeat is an Options.Width by which each request takes one seat.
func oneSeat(*requestinfo.Info, int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }

// oneSeatOf is the width of one seat for Controller.Acquire.
func oneSeatOf(int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }

// newClient returns the client of an authenticated user.
func newClient(name string, groups ...string) client {
	user := &request.User{Name: name, Groups: groups}
	return client{user, request.PrincipalOf(user, "")}
}

// withWork attaches the state of a request with limited work.
func withWork(ctx context.Context, info *requestinfo.Info, limits workLimits) context.Context {
	ctx = requesttest.WithInfo(ctx, info)
	request.FromContext(ctx).Work = &work{limits: limits}
	return ctx
}

// testBounds are the bounds of requests in tests.
var testBounds = Bounds{
	BodyBytesPerCPU:   8 << 20,
	MinBodyBytes:      32 << 20,
	LargeBytesPerCPU:  3 << 20,
	SuspendedBytes:    32 << 20,
	WaitingBodies:     1000,
	Stalled:           1000,
	NegotiationFields: 8 << 10,
}

// newPermits returns a limit of n permits.
func newPermits(count int) *limit.Queue[string] { return limit.New[string](limit.Options{Size: count}) }

// permit is the claim by which a test takes a permit.
var permit = limit.Claim[string]{Key: "test"}

// isFree reports whether a permit is free.
func isFree(queue *limit.Queue[string]) bool { return queue.InUse() < queue.Size() }

// acquireAll acquires units for a user until none are left for it, and returns their number.
func acquireAll(queue *limit.Queue[string], user client) (acquired int) {
	for {
		_, held, ok := user.tryAcquire(queue, 1, 0)
		if !ok || !held {
			return acquired
		}
		acquired++
	}
}

// TestLimitsReserveUnitsForNodesAndServices checks that nodes and the suite's services get units
// when users hold all others.
func TestLimitsReserveUnitsForNodesAndServices(t *testing.T) {
	node := newClient("system:node:a", "system:nodes")
	other := newClient("system:node:b", "system:nodes")
	suite := newClient("system:binnacle:authn-webhook", "system:binnacle")
	administrator := newClient("root", "system:masters")
	queue := newSharedLimit(100)
	// 10 units are reserved, and one principal gets half of the others.
	if n := acquireAll(queue, newClient("greedy")); n != 45 {
		t.Errorf("one user got %d of 100 units, want 45", n)
	}
	for i := range 20 {
		if n := acquireAll(queue, newClient(fmt.Sprint("user", i))); n == 0 && i < 3 {
			t.Errorf("user %d: got no unit, want at least 1", i)
		}
	}
	if n := acquireAll(queue, newClient("system:binnacle:authn-webhook")); n > 0 {
		t.Errorf("a user with only the name of a service got %d units of the reserve, want 0", n)
	}
	if n := acquireAll(queue, node); n == 0 || n > 3 {
		t.Errorf("a node got %d units of the reserve, want 1 to 3", n)
	}
	if n := acquireAll(queue, other); n == 0 {
		t.Error("a second node got no unit")
	}
	for i := range 100 {
		acquireAll(queue, newClient(fmt.Sprint("system:node:", i), "system:nodes"))
	}
	if n := acquireAll(queue, suite); n != 5 {
		t.Errorf("the suite's services got %d units, want 5", n)
	}
	if n := queue.InUse(); n != 100 {
		t.Errorf("got %d units used, want 100", n)
	}
	if _, held, ok := administrator.tryAcquire(queue, 1, 0); held || !ok {
		t.Errorf("administrator: got held = %t, ok = %t, want false, true", held, ok)
	}
	if _, _, ok := suite.tryAcquire(queue, 1, 0); ok {
		t.Error("more units acquired than exist")
	}
}

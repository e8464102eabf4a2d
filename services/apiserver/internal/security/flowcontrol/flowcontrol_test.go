package flowcontrol_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a manual clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1e9, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// schemaUID returns the UID that newSchema gives to the schema of a name.
func schemaUID(name string) string { return "of-" + name }

// newSchema returns a schema that assigns all requests of the subjects to a level.
func newSchema(name, level string, precedence int32, subjects ...flowcontrolv1.Subject) *flowcontrolv1.FlowSchema {
	all := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			UID:  types.UID(schemaUID(name)),
		},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: subjects,
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs:        all,
					APIGroups:    all,
					Resources:    all,
					ClusterScope: true,
					Namespaces:   all,
				}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
			}},
		},
	}
}

func newGroup(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
}

// newRejectingLevel returns a level that rejects requests for which it has no free seat.
func newRejectingLevel(name string, shares int32) *flowcontrolv1.PriorityLevelConfiguration {
	noPercent := int32(0) // of its seats may be lent or borrowed
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &shares,
				LendablePercent:          &noPercent,
				BorrowingLimitPercent:    &noPercent,
				LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
}

// queuing is the configuration of the queues of a level.
type queuing struct {
	queues      int32
	handSize    int32 // queues that a flow may use
	queueLength int32 // requests that may wait in a queue
}

// newQueuingLevel returns a level in which requests wait for a free seat.
func newQueuingLevel(name string, shares int32, q queuing) *flowcontrolv1.PriorityLevelConfiguration {
	level := newRejectingLevel(name, shares)
	level.Spec.Limited.LimitResponse = flowcontrolv1.LimitResponse{
		Type: flowcontrolv1.LimitResponseTypeQueue,
		Queuing: &flowcontrolv1.QueuingConfiguration{
			Queues:           q.queues,
			HandSize:         q.handSize,
			QueueLengthLimit: q.queueLength,
		},
	}
	return level
}

// fixture is a controller with levels of a test. The schema of level l matches group g-l. Catch-all
// has 5 shares, so a level with 95 shares has 95 of 100 seats.
type fixture struct {
	*flowcontrol.Controller
	t        testing.TB
	clock    *clock
	registry *prometheus.Registry
}

func newFixture(t testing.TB, seats int, levels ...*flowcontrolv1.PriorityLevelConfiguration) *fixture {
	created := &fixture{t: t, clock: newClock(), registry: prometheus.NewRegistry()}
	schemas := make([]*flowcontrolv1.FlowSchema, 0, len(levels))
	for i, l := range levels {
		schemas = append(schemas, newSchema("s-"+l.Name, l.Name, int32(100+i), newGroup("g-"+l.Name)))
	}
	created.Controller = flowcontrol.New(flowcontrol.Options{
		Seats:   seats,
		MaxWait: time.Hour,
		Metrics: flowcontrol.NewMetrics(created.registry, seats, seats, created.clock.Now),
		Now:     created.clock.Now,
	})
	created.SetConfig(flowcontrol.Compile(schemas, levels))
	return created
}

var list = &requestinfo.Info{Path: "/api/v1/pods", Verb: "list", IsResource: true, Version: "v1", Resource: "pods"}

func newUser(name, level string) *request.User {
	return &request.User{Name: name, Groups: []string{"g-" + level}}
}

// setConfig replaces the schemas and levels of the controller.
func setConfig(f *fixture, schemas []*flowcontrolv1.FlowSchema, levels ...*flowcontrolv1.PriorityLevelConfiguration) {
	f.SetConfig(flowcontrol.Compile(schemas, levels))
}

// newMetrics returns metrics for tests that do not read them.
func newMetrics() *flowcontrol.Metrics {
	return flowcontrol.NewMetrics(prometheus.NewRegistry(), 1, 1, time.Now)
}

// oneSeat is the width of a request that needs one seat.
func oneSeat(int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }

func (f *fixture) acquire(name, level string) (*flowcontrol.Request, error) {
	req, _, err := f.Acquire(context.Background(), newUser(name, level), list, oneSeat)
	return req, err
}

func rejectionReason(err error) string {
	var rejection *flowcontrol.Rejection
	if errors.As(err, &rejection) {
		return rejection.Reason
	}
	return fmt.Sprint(err)
}

// TestLevelWithoutQueuesRejectsBeyondItsSeats checks that a level without queues rejects requests beyond its seats, and that
// other levels do not notice.
func TestLevelWithoutQueuesRejectsBeyondItsSeats(t *testing.T) {
	fixture := newFixture(t, 100, newRejectingLevel("l", 5)) // half of 100
	var held []*flowcontrol.Request
	for range 50 {
		q, err := fixture.acquire("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, q)
	}
	if _, err := fixture.acquire("a", "l"); rejectionReason(err) != "concurrency-limit" {
		t.Errorf("beyond the limit: got %v, want concurrency-limit", err)
	}
	if _, _, err := fixture.Acquire(t.Context(), &request.User{Name: "m", Groups: []string{"system:masters"}}, list, oneSeat); err != nil {
		t.Errorf("administrator: got %v, want no error", err)
	}
	if q, _, err := fixture.Acquire(t.Context(), &request.User{
		Name:   "x",
		Groups: []string{"system:authenticated"},
	}, list, oneSeat); err != nil {
		t.Errorf("user of another level: got %v, want no error", err)
	} else {
		fixture.Release(q)
	}
	fixture.Release(held[0])
	fixture.Release(held[0]) // counts once
	if _, err := fixture.acquire("a", "l"); err != nil {
		t.Errorf("after a request has ended: got %v, want no error", err)
	}
	if _, err := fixture.acquire("a", "l"); rejectionReason(err) != "concurrency-limit" {
		t.Errorf("beyond the limit again: got %v, want concurrency-limit", err)
	}
}

// TestLevelWithoutSharesServesOneAtATime checks that a level without seats runs one request at a
// time.
func TestLevelWithoutSharesServesOneAtATime(t *testing.T) {
	f := newFixture(t, 100, newRejectingLevel("l", 0))
	request, err := f.acquire("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.acquire("a", "l"); rejectionReason(err) != "concurrency-limit" {
		t.Errorf("second request: got %v, want concurrency-limit", err)
	}
	f.Release(request)
	if _, err := f.acquire("a", "l"); err != nil {
		t.Error(err)
	}
}

// waitingRequests returns the number of waiting requests by the dump.
func (f *fixture) waitingRequests() (waiting int) {
	f.t.Helper()
	var b strings.Builder
	if err := f.DumpQueues(&b); err != nil {
		f.t.Fatal(err)
	}
	for _, line := range strings.Split(b.String(), "\n")[1:] {
		if cells := strings.Split(line, ","); len(cells) > 2 {
			var pending int
			_, _ = fmt.Sscan(cells[2], &pending)
			waiting += pending
		}
	}
	return waiting
}

func (f *fixture) awaitWaiting(n int) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); f.waitingRequests() != n; {
		if time.Now().After(deadline) {
			f.t.Fatalf("got %d waiting requests, want %d", f.waitingRequests(), n)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestQueueLengthAndWaitAreLimited checks that a request is rejected if its queue is full, if it
// waits too long, or if it is canceled.
func TestQueueLengthAndWaitAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, 2, newQueuingLevel("l", 5, queuing{queues: 1, handSize: 1, queueLength: 2})) // one seat
		held, err := fixture.acquire("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan error, 2)
		start := func(ctx context.Context) {
			request, _, err := fixture.Acquire(ctx, newUser("a", "l"), list, oneSeat)
			if err == nil {
				fixture.Release(request)
			}
			answers <- err
		}
		go start(ctx)
		fixture.awaitWaiting(1)
		go start(context.Background())
		fixture.awaitWaiting(2)
		if _, err := fixture.acquire("b", "l"); rejectionReason(err) != "queue-full" {
			t.Errorf("third request: got %v, want queue-full", err)
		}
		cancel()
		if err := <-answers; rejectionReason(err) != "cancelled" {
			t.Errorf("canceled request: got %v, want cancelled", err)
		}
		fixture.Release(held)
		if err := <-answers; err != nil {
			t.Errorf("waiting request: got %v, want no error", err)
		}
		brief, stop := context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer stop()
		held, err = fixture.acquire("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := fixture.Acquire(brief, newUser("a", "l"), list, oneSeat); rejectionReason(err) != "time-out" || brief.Err() != nil {
			t.Errorf("request with a short deadline: got %v, want time-out; context error %v", err, brief.Err())
		}
		fixture.Release(held)
	})
}

// TestFlowWithOneRequestIsServedDuringFlood checks that a flow with one request is served soon although another flow floods
// the level.
func TestFlowWithOneRequestIsServedDuringFlood(t *testing.T) {
	fixture := newFixture(t, 2, newQueuingLevel("l", 5, queuing{queues: 64, handSize: 8, queueLength: 50})) // one seat
	held, err := fixture.acquire("flood", "l")
	if err != nil {
		t.Fatal(err)
	}
	type admission struct {
		name    string
		request *flowcontrol.Request
	}
	admitted := make(chan admission)
	start := func(name string) {
		if request, err := fixture.acquire(name, "l"); err == nil {
			admitted <- admission{name, request}
		} else {
			t.Errorf("%s: %v", name, err)
		}
	}
	const flood = 200
	for i := range flood {
		go start("flood")
		fixture.awaitWaiting(i + 1)
	}
	go start("modest")
	fixture.awaitWaiting(flood + 1)
	at := -1
	fixture.clock.advance(10 * time.Millisecond)
	fixture.Release(held)
	for i := range flood + 1 {
		next := <-admitted
		if next.name == "modest" {
			at = i
		}
		fixture.clock.advance(10 * time.Millisecond)
		fixture.Release(next.request)
	}
	// The flood has eight queues. Two flows that share a queue alternate.
	if at > 2*8+1 {
		t.Errorf("the modest flow was served as number %d of %d, want at most %d", at, flood+1, 2*8+1)
	}
}

// TestSeatsAreConserved checks that under random operations, running requests never hold more seats
// than the limit.
func TestSeatsAreConserved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const seats = 20
		fixture := newFixture(t, seats, newQueuingLevel("l", 15, queuing{queues: 8, handSize: 3, queueLength: 4})) // its nominal limit is 15 seats
		var running []*flowcontrol.Request
		// The sum of the widths of the running requests must never exceed the nominal limit.
		widths := map[*flowcontrol.Request]int{}
		var mu sync.Mutex
		var waiters sync.WaitGroup
		inUse := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, w := range widths {
				n += w
			}
			return n
		}
		rt.Repeat(map[string]func(*rapid.T){
			"begin": func(rt *rapid.T) {
				w := rapid.IntRange(1, 4).Draw(rt, "width")
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "user")
				ctx, cancel := context.WithCancel(context.Background())
				before := fixture.waitingRequests()
				acquired := make(chan bool, 1)
				waiters.Go(func() {
					request, _, err := fixture.Acquire(ctx, newUser(name, "l"),
						list, func(int) flowcontrol.Width { return flowcontrol.Width{Seats: w} })
					if err == nil {
						mu.Lock()
						widths[request] = w
						running = append(running, request)
						mu.Unlock()
					}
					acquired <- true
				})
				// The request runs, is rejected or waits. A waiting request is canceled.
				for {
					select {
					case <-acquired:
					default:
						if fixture.waitingRequests() > before {
							cancel()
							<-acquired
						} else {
							continue
						}
					}
					break
				}
				cancel()
			},
			"end": func(rt *rapid.T) {
				mu.Lock()
				if len(running) == 0 {
					mu.Unlock()
					rt.Skip()
				}
				i := rapid.IntRange(0, len(running)-1).Draw(rt, "which")
				request := running[i]
				running = append(running[:i], running[i+1:]...)
				delete(widths, request)
				mu.Unlock()
				fixture.Release(request)
			},
			"time": func(rt *rapid.T) {
				fixture.clock.advance(time.Duration(rapid.IntRange(0, 20000).Draw(rt, "ms")) * time.Millisecond)
			},
			"adjust": func(*rapid.T) { fixture.Adjust() },
			"": func(rt *rapid.T) {
				if n := inUse(); n > 15 {
					rt.Fatalf("got %d seats in use, want at most 15", n)
				}
			},
		})
		waiters.Wait()
		for _, request := range running {
			fixture.Release(request)
		}
		if request, err := fixture.acquire("a", "l"); err != nil {
			rt.Fatalf("request to an empty level: got error %v, want none", err)
		} else {
			fixture.Release(request)
		}
	})
}

// TestRetryAfterGrowsUnderLoad checks that Retry-After grows to its maximum under load and returns to
// 1 after a pause.
func TestRetryAfterGrowsUnderLoad(t *testing.T) {
	fixture := newFixture(t, 2, newRejectingLevel("l", 5))
	if _, err := fixture.acquire("a", "l"); err != nil {
		t.Fatal(err)
	}
	last := 0
	for range 100 {
		for range 50 {
			_, err := fixture.acquire("a", "l")
			var rejection *flowcontrol.Rejection
			if !errors.As(err, &rejection) {
				t.Fatal(err)
			}
			if rejection.RetryAfter < last {
				t.Fatalf("Retry-After fell from %d to %d seconds under load, want at least %v", last, rejection.RetryAfter, last)
			}
			last = rejection.RetryAfter
		}
		fixture.clock.advance(time.Second)
	}
	if last != 32 {
		t.Errorf("got at most %d seconds, want 32", last)
	}
	fixture.clock.advance(time.Hour)
	if _, err := fixture.acquire("a", "l"); !strings.Contains(err.Error(), "concurrency-limit") {
		t.Error(err)
	} else if rejection := new(flowcontrol.Rejection); !errors.As(err, &rejection) || rejection.RetryAfter != 1 {
		t.Errorf("after an hour: got %d seconds, want 1", rejection.RetryAfter)
	}
}

// BenchmarkUnqueued measures a request that starts without waiting.
func BenchmarkUnqueued(b *testing.B) {
	f := newFixture(b, 600, newQueuingLevel("l", 100, queuing{queues: 64, handSize: 6, queueLength: 50}))
	u := newUser("a", "l")
	b.ReportAllocs()
	for b.Loop() {
		request, _, err := f.Acquire(context.Background(), u, list, oneSeat)
		if err != nil {
			b.Fatal(err)
		}
		f.Release(request)
	}
}

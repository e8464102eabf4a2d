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

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func schema(name, level string, precedence int32, subjects ...flowcontrolv1.Subject) *flowcontrolv1.FlowSchema {
	all := []string{"*"}
	return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("of-" + name)}, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level}, MatchingPrecedence: precedence,
		DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects:         subjects,
			ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
		}},
	}}
}

func group(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
}

// limited returns a level that rejects requests if queues is 0.
func limited(name string, shares, queues, hand, length int32) *flowcontrolv1.PriorityLevelConfiguration {
	none := int32(0)
	l := &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LendablePercent: &none, BorrowingLimitPercent: &none}
	l.LimitResponse.Type = flowcontrolv1.LimitResponseTypeReject
	if queues > 0 {
		l.LimitResponse = flowcontrolv1.LimitResponse{
			Type:    flowcontrolv1.LimitResponseTypeQueue,
			Queuing: &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: hand, QueueLengthLimit: length},
		}
	}
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: l},
	}
}

// fixture is a controller with levels of a test. The schema of level l matches group g-l. Catch-all
// has 5 shares, so a level with 95 shares has 95 of 100 seats.
type fixture struct {
	*flowcontrol.Controller
	t     testing.TB
	clock *clock
	reg   *prometheus.Registry
}

func newFixture(t testing.TB, seats int, levels ...*flowcontrolv1.PriorityLevelConfiguration) *fixture {
	r := &fixture{t: t, clock: newClock(), reg: prometheus.NewRegistry()}
	schemas := make([]*flowcontrolv1.FlowSchema, 0, len(levels))
	for i, l := range levels {
		schemas = append(schemas, schema("s-"+l.Name, l.Name, int32(100+i), group("g-"+l.Name)))
	}
	r.Controller = flowcontrol.New(flowcontrol.Options{
		Seats: seats, MaxWait: time.Hour,
		Metrics: flowcontrol.NewMetrics(r.reg, seats, seats, r.clock.Now), Now: r.clock.Now,
	})
	r.SetConfig(flowcontrol.Compile(schemas, levels))
	return r
}

var list = &requestinfo.Info{Path: "/api/v1/pods", Verb: "list", IsResource: true, Version: "v1", Resource: "pods"}

func user(name, level string) *request.User {
	return &request.User{Name: name, Groups: []string{"g-" + level}}
}

func one(int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }

func (r *fixture) begin(name, level string) (*flowcontrol.Request, error) {
	req, _, err := r.Begin(context.Background(), user(name, level), list, one)
	return req, err
}

func reason(err error) string {
	var no *flowcontrol.Rejection
	if errors.As(err, &no) {
		return no.Reason
	}
	return fmt.Sprint(err)
}

func TestRejectingLevel(t *testing.T) {
	r := newFixture(t, 100, limited("l", 5, 0, 0, 0)) // half of 100
	var held []*flowcontrol.Request
	for range 50 {
		q, err := r.begin("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, q)
	}
	if _, err := r.begin("a", "l"); reason(err) != "concurrency-limit" {
		t.Errorf("beyond the limit: got %v, want concurrency-limit", err)
	}
	if _, _, err := r.Begin(t.Context(), &request.User{Name: "m", Groups: []string{"system:masters"}}, list, one); err != nil {
		t.Errorf("administrator: %v", err)
	}
	if q, _, err := r.Begin(t.Context(), &request.User{Name: "x", Groups: []string{"system:authenticated"}}, list, one); err != nil {
		t.Errorf("user of another level: %v", err)
	} else {
		r.End(q)
	}
	r.End(held[0])
	r.End(held[0]) // counts once
	if _, err := r.begin("a", "l"); err != nil {
		t.Errorf("after a request has ended: %v", err)
	}
	if _, err := r.begin("a", "l"); reason(err) != "concurrency-limit" {
		t.Errorf("beyond the limit again: got %v, want concurrency-limit", err)
	}
}

func TestLevelWithoutSharesServesOneAtATime(t *testing.T) {
	r := newFixture(t, 100, limited("l", 0, 0, 0, 0))
	q, err := r.begin("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.begin("a", "l"); reason(err) != "concurrency-limit" {
		t.Errorf("second request: got %v, want concurrency-limit", err)
	}
	r.End(q)
	if _, err := r.begin("a", "l"); err != nil {
		t.Error(err)
	}
}

// waiting returns the number of waiting requests by the dump.
func (r *fixture) waiting() (n int) {
	r.t.Helper()
	var b strings.Builder
	if err := r.DumpQueues(&b); err != nil {
		r.t.Fatal(err)
	}
	for _, line := range strings.Split(b.String(), "\n")[1:] {
		if cells := strings.Split(line, ","); len(cells) > 2 {
			var pending int
			_, _ = fmt.Sscan(cells[2], &pending)
			n += pending
		}
	}
	return n
}

func (r *fixture) awaitWaiting(n int) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); r.waiting() != n; {
		if time.Now().After(deadline) {
			r.t.Fatalf("got %d waiting requests, want %d", r.waiting(), n)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestQueueLengthAndWaitAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, 2, limited("l", 5, 1, 1, 2)) // one seat
		held, err := r.begin("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan error, 2)
		ask := func(ctx context.Context) {
			q, _, err := r.Begin(ctx, user("a", "l"), list, one)
			if err == nil {
				r.End(q)
			}
			answers <- err
		}
		go ask(ctx)
		r.awaitWaiting(1)
		go ask(context.Background())
		r.awaitWaiting(2)
		if _, err := r.begin("b", "l"); reason(err) != "queue-full" {
			t.Errorf("third request: got %v, want queue-full", err)
		}
		cancel()
		if err := <-answers; reason(err) != "cancelled" {
			t.Errorf("canceled request: got %v, want cancelled", err)
		}
		r.End(held)
		if err := <-answers; err != nil {
			t.Errorf("waiting request: %v", err)
		}
		brief, stop := context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer stop()
		held, err = r.begin("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Begin(brief, user("a", "l"), list, one); reason(err) != "time-out" || brief.Err() != nil {
			t.Errorf("request with a short deadline: got %v, want time-out; context error %v", err, brief.Err())
		}
		r.End(held)
	})
}

// TestNoFlowStarves: a flow with one request is served soon although another flow floods the level.
func TestNoFlowStarves(t *testing.T) {
	r := newFixture(t, 2, limited("l", 5, 64, 8, 50)) // one seat
	held, err := r.begin("flood", "l")
	if err != nil {
		t.Fatal(err)
	}
	type admission struct {
		name string
		q    *flowcontrol.Request
	}
	admitted := make(chan admission)
	ask := func(name string) {
		if q, err := r.begin(name, "l"); err == nil {
			admitted <- admission{name, q}
		} else {
			t.Errorf("%s: %v", name, err)
		}
	}
	const flood = 200
	for i := range flood {
		go ask("flood")
		r.awaitWaiting(i + 1)
	}
	go ask("modest")
	r.awaitWaiting(flood + 1)
	at := -1
	r.clock.pass(10 * time.Millisecond)
	r.End(held)
	for i := range flood + 1 {
		next := <-admitted
		if next.name == "modest" {
			at = i
		}
		r.clock.pass(10 * time.Millisecond)
		r.End(next.q)
	}
	// The flood has eight queues. Two flows that share a queue alternate.
	if at > 2*8+1 {
		t.Errorf("the modest flow was served as number %d of %d, want at most %d", at, flood+1, 2*8+1)
	}
}

// TestSeatsAreConserved: under random operations, running requests never hold more seats than the
// limit.
func TestSeatsAreConserved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const seats = 20
		r := newFixture(t, seats, limited("l", 15, 8, 3, 4)) // 15 of 20
		var running []*flowcontrol.Request
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
				before := r.waiting()
				came := make(chan bool, 1)
				waiters.Go(func() {
					q, _, err := r.Begin(ctx, user(name, "l"), list, func(int) flowcontrol.Width { return flowcontrol.Width{Seats: w} })
					if err == nil {
						mu.Lock()
						widths[q] = w
						running = append(running, q)
						mu.Unlock()
					}
					came <- true
				})
				// The request runs, is rejected or waits. A waiting request is canceled.
				for {
					select {
					case <-came:
					default:
						if r.waiting() > before {
							cancel()
							<-came
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
				q := running[i]
				running = append(running[:i], running[i+1:]...)
				delete(widths, q)
				mu.Unlock()
				r.End(q)
			},
			"time": func(rt *rapid.T) {
				r.clock.pass(time.Duration(rapid.IntRange(0, 20000).Draw(rt, "ms")) * time.Millisecond)
			},
			"adjust": func(*rapid.T) { r.Adjust() },
			"": func(rt *rapid.T) {
				if n := inUse(); n > 15 {
					rt.Fatalf("got %d seats in use, want at most 15", n)
				}
			},
		})
		waiters.Wait()
		for _, q := range running {
			r.End(q)
		}
		if q, err := r.begin("a", "l"); err != nil {
			rt.Fatalf("an empty level rejects: %v", err)
		} else {
			r.End(q)
		}
	})
}

func TestSeatsAreLent(t *testing.T) {
	half := int32(50)
	busy, quiet := limited("busy", 45, 1, 1, 200), limited("quiet", 50, 1, 1, 200)
	busy.Spec.Limited.BorrowingLimitPercent = nil
	quiet.Spec.Limited.LendablePercent = &half
	r := newFixture(t, 100, busy, quiet)
	var held []*flowcontrol.Request
	fill := func(level string) (n int) {
		for {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			var q *flowcontrol.Request
			go func() {
				var err error
				q, _, err = r.Begin(ctx, user("a", level), list, one)
				done <- err
			}()
			for r.waiting() == 0 && len(done) == 0 {
				time.Sleep(50 * time.Microsecond)
			}
			cancel()
			if <-done != nil {
				return n
			}
			held = append(held, q)
			n++
		}
	}
	if n := fill("busy"); n != 45 {
		t.Errorf("got %d seats at first, want 45", n)
	}
	r.clock.pass(flowcontrol.Period)
	r.Adjust()
	// All 100 seats are divided as 45 to 25 to 5, the demand or the lower limit.
	if n := fill("busy"); n != 15 {
		t.Errorf("got %d borrowed seats, want 15", n)
	}
	for _, q := range held {
		r.End(q)
	}
	held = nil
	if n := fill("quiet"); n != 33 {
		t.Errorf("quiet level: got %d seats at once, want 33", n)
	}
	r.clock.pass(flowcontrol.Period)
	r.Adjust() // the busy level has no demand now, so lent seats return
	if n := fill("quiet"); n < 5 {
		t.Errorf("got %d seats back in the quiet level, want at least 5", n)
	}
}

func TestRemovedLevelServesItsRequests(t *testing.T) {
	r := newFixture(t, 100, limited("l", 5, 0, 0, 0))
	q, err := r.begin("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	r.SetConfig(flowcontrol.Compile(nil, nil))
	var b strings.Builder
	if err := r.DumpLevels(&b); err != nil {
		t.Fatal(err)
	}
	if want := "l,                 0,            false,  true,        0,               1,                 1,                  0,                0,                0\n"; !strings.Contains(b.String(), want) {
		t.Errorf("want %q in:\n%s", want, b.String())
	}
	r.End(q)
	r.Adjust()
	b.Reset()
	if err := r.DumpLevels(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\nl,") {
		t.Errorf("the removed level still exists:\n%s", b.String())
	}
}

// TestRetryAfterGrowsUnderLoad: Retry-After grows to its maximum under load and returns to 1 after
// a pause.
func TestRetryAfterGrowsUnderLoad(t *testing.T) {
	r := newFixture(t, 2, limited("l", 5, 0, 0, 0))
	if _, err := r.begin("a", "l"); err != nil {
		t.Fatal(err)
	}
	last := 0
	for range 100 {
		for range 50 {
			_, err := r.begin("a", "l")
			var no *flowcontrol.Rejection
			if !errors.As(err, &no) {
				t.Fatal(err)
			}
			if no.RetryAfter < last {
				t.Fatalf("Retry-After fell from %d to %d seconds under load", last, no.RetryAfter)
			}
			last = no.RetryAfter
		}
		r.clock.pass(time.Second)
	}
	if last != 32 {
		t.Errorf("got at most %d seconds, want 32", last)
	}
	r.clock.pass(time.Hour)
	if _, err := r.begin("a", "l"); !strings.Contains(err.Error(), "concurrency-limit") {
		t.Error(err)
	} else if no := new(flowcontrol.Rejection); !errors.As(err, &no) || no.RetryAfter != 1 {
		t.Errorf("after an hour: got %d seconds, want 1", no.RetryAfter)
	}
}

func BenchmarkUnqueued(b *testing.B) {
	r := newFixture(b, 600, limited("l", 100, 64, 6, 50))
	u := user("a", "l")
	b.ReportAllocs()
	for b.Loop() {
		q, _, err := r.Begin(context.Background(), u, list, one)
		if err != nil {
			b.Fatal(err)
		}
		r.End(q)
	}
}

package flowcontrol_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// awaitOutcome waits until a request has run or been rejected, which closes done, or until it waits
// in a queue. before is the number of waiting requests without it. awaitOutcome returns false if the
// request waits.
func (f *fixture) awaitOutcome(done <-chan struct{}, before int) (ended bool) {
	for f.waitingRequests() <= before {
		select {
		case <-done:
			return true
		default:
		}
	}
	return false
}

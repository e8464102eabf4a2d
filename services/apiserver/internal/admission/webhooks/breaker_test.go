package webhooks

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/libs/pipetest"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// fixture is a webhook server, and a dispatcher with a hook that calls it.
type fixture struct {
	t          *testing.T
	dispatcher *dispatcher
	hook       *hook
	events     chan ReachabilityEvent // events that the dispatcher reported
	closed     chan struct{}          // receives a value for each connection that the server closed
	gate       chan struct{}          // new connections wait until it is closed

	mu    sync.Mutex
	calls int // calls that the server received since takeCalls
	// respond responds to a call. If it writes nothing, the server aborts the connection.
	respond func(w http.ResponseWriter, uid string)
}

// respondNothing makes the server abort the connection.
func respondNothing(http.ResponseWriter, string) {}

// respondAllowed allows the reviewed request.
func respondAllowed(w http.ResponseWriter, uid string) {
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, uid)
}

// newFixture starts a server that aborts connections. changes modify the configuration of the hook.
func newFixture(t *testing.T, changes ...func(*webhook)) *fixture {
	t.Helper()
	out := &fixture{
		t: t, respond: respondNothing, events: make(chan ReachabilityEvent, 8), closed: make(chan struct{}, 100),
		gate: make(chan struct{}),
	}
	close(out.gate)
	listener := pipetest.Listen(443)
	server := &httptest.Server{
		Listener: listener,
		Config: &http.Server{Handler: http.HandlerFunc(func(configured http.ResponseWriter, r *http.Request) {
			var review struct{ Request struct{ UID string } }
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				http.Error(configured, err.Error(), http.StatusBadRequest)
				return
			}
			out.mu.Lock()
			out.calls++
			respond := out.respond
			out.mu.Unlock()
			recorder := &writeRecorder{ResponseWriter: configured}
			respond(recorder, review.Request.UID)
			if !recorder.wrote {
				panic(http.ErrAbortHandler)
			}
		})},
	}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			out.closed <- struct{}{}
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	var err error
	out.dispatcher, err = newDispatcher(Config{
		Metrics: NewMetrics(prometheus.NewRegistry()),
		Logger:  slog.New(slog.DiscardHandler),
		Notify:  func(_ context.Context, event ReachabilityEvent) { out.events <- event },
		Dialers: webhookclient.Dialers{URLs: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-out.gate:
				return listener.Dial(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}},
	}, typeValidating, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.dispatcher.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	url, none := server.URL, admissionregistrationv1.SideEffectClassNone
	configured := webhook{ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
		Name:                    "h.ex.test",
		AdmissionReviewVersions: []string{"v1"},
		SideEffects:             &none,
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
	}}
	for _, change := range changes {
		change(&configured)
	}
	out.hook = compileHook(nil, &admissionregistrationv1.ValidatingWebhookConfiguration{}, &configured)
	out.hook.caller = out.dispatcher.clients.callerFor("h", out.hook, configured.ClientConfig)
	return out
}

// writeRecorder records whether anything was written.
type writeRecorder struct {
	http.ResponseWriter
	wrote bool
}

func (c *writeRecorder) Write(p []byte) (int, error) {
	c.wrote = true
	return c.ResponseWriter.Write(p)
}

func (c *writeRecorder) Flush() { c.wrote = true; c.ResponseWriter.(http.Flusher).Flush() }

// setResponse sets how the server responds from now on.
func (f *fixture) setResponse(respond func(http.ResponseWriter, string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.respond = respond
}

// takeCalls returns how many calls the server received since takeCalls was called last.
func (f *fixture) takeCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = 0
	return calls
}

// callResult is the result of an attempt to call the webhook.
type callResult string

const (
	callSucceeded callResult = "succeeded"
	callFailed    callResult = "failed"
	callPrevented callResult = "prevented by the breaker"
)

// isMutating is the argument of calls in these tests: the webhook is a validating one.
const isMutating = false

// call tries to call the webhook.
func (f *fixture) call() callResult {
	_, err := f.hook.call(f.t.Context(), testReview(), isMutating)
	var failed *failure
	switch {
	case err == nil:
		return callSucceeded
	case errors.As(err, &failed) && failed.open:
		return callPrevented
	}
	return callFailed
}

// testReview returns a review request for an object named c.
func testReview() *reviewRequest {
	return &reviewRequest{head: []byte(`"name":"c"`), object: []byte("null"), oldObject: []byte("null"), options: []byte("null")}
}

// requireCalls tries to call the webhook several times. It checks the results, and that the server
// received the calls that the breaker did not prevent. webhook describes the webhook in messages.
func (f *fixture) requireCalls(webhook string, times int, want callResult) {
	f.t.Helper()
	for range times {
		if got := f.call(); got != want {
			f.t.Errorf("webhook that %s: call %s, want it %s", webhook, got, want)
		}
	}
	wantCalls := times
	if want == callPrevented {
		wantCalls = 0
	}
	if got := f.takeCalls(); got != wantCalls {
		f.t.Errorf("webhook that %s: the server received %d calls, want %d", webhook, got, wantCalls)
	}
}

// TestBreakerStaysClosedAfterOtherFailures checks that the breaker stays closed after failures of
// webhooks with failurePolicy Ignore, invalid responses, and requests that the client cancels.
func TestBreakerStaysClosedAfterOtherFailures(t *testing.T) {
	synctest.Test(t, breakerStaysClosedAfterOtherFailures)
}

func breakerStaysClosedAfterOtherFailures(t *testing.T) {
	const enoughToOpen = failureThreshold + 1

	// 1. Failures of a webhook with failurePolicy Ignore.
	ignorePolicy := admissionregistrationv1.Ignore
	fixture := newFixture(t, func(w *webhook) { w.FailurePolicy = &ignorePolicy })
	fixture.requireCalls("has failurePolicy Ignore", enoughToOpen, callFailed)

	// 2. Invalid responses.
	fixture = newFixture(t)
	fixture.setResponse(func(w http.ResponseWriter, _ string) { fmt.Fprint(w, "{}") })
	fixture.requireCalls("responds without a review response", enoughToOpen, callFailed)

	// 3. Requests that the client cancels during the call.
	received, abort := make(chan struct{}), make(chan struct{})
	fixture.setResponse(func(http.ResponseWriter, string) { received <- struct{}{}; <-abort })
	for range enoughToOpen {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-received; cancel() }()
		if _, err := fixture.hook.call(ctx, testReview(), isMutating); err == nil {
			t.Error("call with a canceled context: got no error, want one")
		}
	}
	close(abort)
	fixture.setResponse(respondNothing)
	fixture.takeCalls()
	fixture.requireCalls("had canceled calls before", 1, callFailed)

	// 4. Timeouts after the response headers. The object may cause a missing or incomplete response.
	second := int32(1)
	fixture = newFixture(t, func(w *webhook) { w.TimeoutSeconds = &second })
	testDone := make(chan struct{})
	fixture.setResponse(func(w http.ResponseWriter, _ string) { _ = http.NewResponseController(w).Flush(); <-testDone })
	fixture.requireCalls("sends only response headers", failureThreshold, callFailed)
	fixture.requireCalls("sent only response headers before", 1, callFailed)
	close(testDone)
}

// TestFullResponseLimiterKeepsBreakerClosed checks that the webhook counts as reachable if its large
// response finds no slot of the response limiter.
func TestFullResponseLimiterKeepsBreakerClosed(t *testing.T) {
	fixture := newFixture(t)
	const slots = 8
	fixture.dispatcher.clients.responses = webhookclient.NewResponseLimiter(slots)
	fixture.dispatcher.clients.responses.Timeout = time.Hour
	finish := make(chan struct{})
	huge := strings.Repeat("x", 3<<19)
	fixture.setResponse(func(w http.ResponseWriter, _ string) {
		fmt.Fprint(w, huge)
		_ = http.NewResponseController(w).Flush()
		<-finish
	})
	slow, quick := *fixture.hook, *fixture.hook
	slow.timeout, quick.timeout = time.Hour, 100*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var holders sync.WaitGroup
	for range slots {
		holders.Go(func() { _, _, _ = slow.send(ctx, testReview(), "u", isMutating) })
	}
	// Until the other calls hold all slots, the call fails with a timeout.
	for {
		_, outcome, err := quick.send(t.Context(), testReview(), "u", isMutating)
		if err == nil || quick.timeout > time.Minute {
			t.Errorf("call with a timeout of %v: got error %v, want \"too many large webhook responses\"", quick.timeout, err)
			break
		}
		if !strings.Contains(err.Error(), "too many large webhook responses") {
			quick.timeout *= 2
			continue
		}
		if outcome != responded {
			t.Errorf("call that failed with %q: got outcome %d, want %d (responded)", err, outcome, responded)
		}
		break
	}
	cancel()
	close(finish)
	holders.Wait()
}

// TestClosedBreakerSendsNoProbe checks that a closed dispatcher starts no probe and reports nothing.
func TestClosedBreakerSendsNoProbe(t *testing.T) {
	fixture := newFixture(t)
	fixture.dispatcher.Close()
	for range failureThreshold + 1 {
		fixture.hook.caller.breaker.record(unreachable, errors.New("gone"))
	}
	fixture.dispatcher.probes.Wait()
	if n := len(fixture.events); n != 0 {
		t.Errorf("closed dispatcher reported %d events, want none", n)
	}
	if err := fixture.hook.caller.breaker.Open(); err != nil {
		t.Errorf("breaker of a closed dispatcher is open: %v, want it closed", err)
	}
}

// TestUnreachableWebhookHasOneProbe checks that many failures open the breaker and start a single
// probe, and that a connection of the probe closes the breaker.
func TestUnreachableWebhookHasOneProbe(t *testing.T) {
	for hookType, kind := range map[string]string{
		typeValidating: "ValidatingWebhookConfiguration", typeMutating: "MutatingWebhookConfiguration",
	} {
		fixture := newFixture(t)
		breaker := fixture.hook.caller.breaker
		breaker.hookType, fixture.gate = hookType, make(chan struct{})
		for range 3 * failureThreshold {
			breaker.record(unreachable, errors.New("gone"))
		}
		if event := <-fixture.events; event.Kind != kind || event.Reachable || event.Reason != "gone" {
			t.Errorf("%s: after failures, got event %+v; want one of an unreachable %s with reason \"gone\"", hookType, event, kind)
		}
		fixture.requireCalls("is unreachable", 1, callPrevented)
		close(fixture.gate)
		if event := <-fixture.events; event.Kind != kind || !event.Reachable {
			t.Errorf("%s: after the probe connected, got event %+v; want one of a reachable %s", hookType, event, kind)
		}
		fixture.dispatcher.probes.Wait()
		fixture.setResponse(respondAllowed)
		if len(fixture.events) != 0 {
			t.Errorf("%s: got a third event %+v, want none", hookType, <-fixture.events)
		}
		fixture.takeCalls() // ignores the call of the probe
		fixture.requireCalls("is reachable again", 1, callSucceeded)
	}
}

// TestCloseClosesConnections checks that closing the dispatcher closes idle connections.
func TestCloseClosesConnections(t *testing.T) {
	fixture := newFixture(t)
	fixture.setResponse(respondAllowed)
	fixture.requireCalls("is reachable", 1, callSucceeded)
	fixture.dispatcher.Close()
	<-fixture.closed
}

// TestTypeLabelDiffersBetweenMetrics checks the values of the label "type", which differ between
// metrics as in Kubernetes.
func TestTypeLabelDiffersBetweenMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for _, hookType := range []string{typeMutating, typeValidating} {
		m.observeConditions("n", hookType, "CREATE", 0)
		m.observeExclusion("n", hookType, "CREATE")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "type" {
					got[family.GetType().String()+" "+label.GetValue()] = true
				}
			}
		}
	}
	want := "map[COUNTER admit:true COUNTER validate:true HISTOGRAM mutating:true HISTOGRAM validating:true]"
	if fmt.Sprint(got) != want {
		t.Errorf("got metric types and values of the label type %v, want %s", got, want)
	}
}

// TestSeriesAreRemovedWithWebhook checks that the metrics of webhooks that are no longer configured
// are removed.
func TestSeriesAreRemovedWithWebhook(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	configured := map[string]bool{"kept": true}
	for _, hookType := range []string{typeMutating, typeValidating} {
		metrics.keepWhileConfigured(hookType, func() (map[string]bool, bool) { return configured, true })
	}
	observeAll := func(name string) {
		for _, hookType := range []string{typeMutating, typeValidating} {
			metrics.observeCall(name, hookType, "CREATE", 0, false, 200)
			metrics.observeRejection(name, hookType, "CREATE", noError, 400)
			metrics.observeFailOpen(name, hookType)
			metrics.observeConditions(name, hookType, "CREATE", 0)
			metrics.observeExclusion(name, hookType, "CREATE")
			metrics.observeOpened(name, hookType)()
			metrics.observeSkipped(name, hookType)
		}
	}
	countSeries := func() (count int) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			count += len(f.GetMetric())
		}
		return count
	}
	observeAll("kept")
	before := countSeries()
	for i := range 3 {
		observeAll(fmt.Sprint("removed", i))
	}
	for i := range 3 * maxHooks { // more than have their own series
		metrics.observeSkipped(fmt.Sprint("hook", i), typeValidating)
	}
	observeAll(otherHook)
	if count, maximum := countSeries(), 2*before; count > maximum {
		t.Errorf("got %d series after the webhooks were removed, want at most %d", count, maximum)
	}
}

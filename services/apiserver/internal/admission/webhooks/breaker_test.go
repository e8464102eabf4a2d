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
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/libs/pipetest"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// fixture is a webhook with a dispatcher whose clock the test controls.
type fixture struct {
	t       *testing.T
	d       *dispatcher
	h       *hook
	notices chan ReachabilityEvent
	// closed receives for each closed connection.
	closed chan struct{}
	// New connections wait until gate is closed.
	gate     chan struct{}
	mu       sync.Mutex
	received []bool // dry runs
	// response responds to a request. If it writes nothing, the connection is aborted.
	response func(w http.ResponseWriter, uid string)
}

func cuts(http.ResponseWriter, string) {}

func allows(w http.ResponseWriter, uid string) {
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, uid)
}

func newFixture(t *testing.T, change ...func(*webhook)) *fixture {
	t.Helper()
	s := &fixture{t: t, response: cuts, notices: make(chan ReachabilityEvent, 8), closed: make(chan struct{}, 100), gate: make(chan struct{})}
	close(s.gate)
	l := pipetest.Listen(443)
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Request struct {
				UID    string
				DryRun bool
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.received = append(s.received, q.Request.DryRun)
		response := s.response
		s.mu.Unlock()
		written := &writeRecorder{ResponseWriter: w}
		response(written, q.Request.UID)
		if !written.any {
			panic(http.ErrAbortHandler)
		}
	})}}
	server.Config.ConnState = func(_ net.Conn, is http.ConnState) {
		if is == http.StateClosed {
			s.closed <- struct{}{}
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	var err error
	s.d, err = newDispatcher(Config{
		Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Notify: func(_ context.Context, n ReachabilityEvent) { s.notices <- n },
		Dialers: webhookclient.Dialers{URLs: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-s.gate:
				return l.Dial(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}},
	}, typeValidating, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.d.Close)
	url, none := server.URL, admissionv1.SideEffectClassNone
	w := webhook{ValidatingWebhook: admissionv1.ValidatingWebhook{
		Name: "h.ex.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
		ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
	}}
	for _, f := range change {
		f(&w)
	}
	s.h = compileHook(nil, &admissionv1.ValidatingWebhookConfiguration{}, &w)
	s.h.caller = s.d.clients.callerFor("h", s.h, w.ClientConfig)
	return s
}

// writeRecorder records whether anything was written.
type writeRecorder struct {
	http.ResponseWriter
	any bool
}

func (c *writeRecorder) Write(p []byte) (int, error) { c.any = true; return c.ResponseWriter.Write(p) }

func (c *writeRecorder) Flush() { c.any = true; c.ResponseWriter.(http.Flusher).Flush() }

func (f *fixture) set(response func(http.ResponseWriter, string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.response = response
}

// calls returns the dry run flags of the calls since the last time.
func (f *fixture) calls() (dry []bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dry, f.received = f.received, nil
	return dry
}

// call sends a request. It reports whether the webhook responded, and whether the
// breaker prevented the call.
func (s *fixture) call() (ok, unasked bool) {
	_, err := s.h.call(s.t.Context(), review(), false)
	var f *failure
	return err == nil, errors.As(err, &f) && f.open
}

func review() *reviewRequest {
	return &reviewRequest{head: []byte(`"name":"c"`), object: []byte("null"), old: []byte("null"), options: []byte("null")}
}

// requireCalls sends requests and checks their results and the number of calls.
func (f *fixture) requireCalls(what string, times int, ok, unasked bool, asked int) {
	f.t.Helper()
	for range times {
		if gotOK, gotUnasked := f.call(); gotOK != ok || gotUnasked != unasked {
			f.t.Errorf("%s: got response %t, breaker open %t; want %v, %v", what, gotOK, gotUnasked, ok, unasked)
		}
	}
	if got := len(f.calls()); got != asked {
		f.t.Errorf("%s: got %d calls, want %d", what, got, asked)
	}
}

// TestFailuresThatKeepBreakerClosed covers webhooks with failurePolicy Ignore, requests that the
// client cancels, and invalid responses.
func TestFailuresThatKeepBreakerClosed(t *testing.T) { synctest.Test(t, failuresThatKeepBreakerClosed) }

func failuresThatKeepBreakerClosed(t *testing.T) {
	const often = failureThreshold + 1
	ignorePolicy, second := admissionv1.Ignore, int32(1)
	f := newFixture(t, func(w *webhook) { w.FailurePolicy = &ignorePolicy })
	f.requireCalls("it lets pass", often, false, false, often)
	f = newFixture(t)
	f.set(func(w http.ResponseWriter, _ string) { fmt.Fprint(w, "{}") })
	f.requireCalls("no response", often, false, false, often)
	came, leave := make(chan struct{}), make(chan struct{})
	f.set(func(http.ResponseWriter, string) { came <- struct{}{}; <-leave })
	for range often {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-came; cancel() }()
		if _, err := f.h.call(ctx, review(), false); err == nil {
			t.Error("got a response to a canceled request")
		}
	}
	close(leave)
	f.set(cuts)
	f.calls()
	f.requireCalls("its client went", 1, false, false, 1)

	// A missing or incomplete response may be caused by the object.
	f = newFixture(t, func(w *webhook) { w.TimeoutSeconds = &second })
	end := make(chan struct{})
	f.set(func(w http.ResponseWriter, _ string) { _ = http.NewResponseController(w).Flush(); <-end })
	f.requireCalls("half a response", failureThreshold, false, false, failureThreshold)
	f.requireCalls("half a response, after that", 1, false, false, 1)
	close(end)
}

// TestFullResponseLimiterKeepsBreakerClosed checks that a response without a slot counts as a
// response.
func TestFullResponseLimiterKeepsBreakerClosed(t *testing.T) {
	f := newFixture(t)
	f.d.clients.responses = webhookclient.NewResponseLimiter(8)
	f.d.clients.responses.Timeout = time.Hour
	end := make(chan struct{})
	huge := strings.Repeat("x", 3<<19)
	f.set(func(w http.ResponseWriter, _ string) {
		fmt.Fprint(w, huge)
		_ = http.NewResponseController(w).Flush()
		<-end
	})
	slow, quick := *f.h, *f.h
	slow.timeout, quick.timeout = time.Hour, 100*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var holders sync.WaitGroup
	for range 8 {
		holders.Go(func() { _, _, _ = slow.send(ctx, review(), "u", false) })
	}
	for {
		_, how, err := quick.send(t.Context(), review(), "u", false)
		if err == nil || quick.timeout > time.Minute {
			t.Errorf("got a slot: %v; want an error, at most %v", err, time.Minute)
			break
		}
		if !strings.Contains(err.Error(), "too many large webhook responses") { // the other calls do not hold all slots yet
			quick.timeout *= 2
			continue
		}
		if how != responded {
			t.Errorf("got outcome %d, want %d: %v", how, responded, err)
		}
		break
	}
	cancel()
	close(end)
	holders.Wait()
}

// TestNoProbeAfterClose checks that a closed dispatcher starts no probe and reports nothing.
func TestNoProbeAfterClose(t *testing.T) {
	f := newFixture(t)
	f.d.Close()
	for range failureThreshold + 1 {
		f.h.caller.breaker.record(unreachable, errors.New("gone"))
	}
	f.d.probes.Wait()
	if len(f.notices) != 0 || f.h.caller.breaker.Open() != nil {
		t.Errorf("got notice %v; want length 0, nil", <-f.notices)
	}
}

// TestUnreachableWebhookHasOneProbe checks that many failures start a single probe.
func TestUnreachableWebhookHasOneProbe(t *testing.T) {
	for hookType, kind := range map[string]string{typeValidating: "ValidatingWebhookConfiguration", typeMutating: "MutatingWebhookConfiguration"} {
		f := newFixture(t)
		b := f.h.caller.breaker
		b.hookType, f.gate = hookType, make(chan struct{})
		for range 3 * failureThreshold {
			b.record(unreachable, errors.New("gone"))
		}
		if n := <-f.notices; n.Kind != kind || n.Reachable || n.Reason != "gone" {
			t.Errorf("got notice %+v; want %v, false, \"gone\"", n, kind)
		}
		f.requireCalls("open", 1, false, true, 0)
		close(f.gate)
		if n := <-f.notices; n.Kind != kind || !n.Reachable {
			t.Errorf("got notice %+v; want %v, true", n, kind)
		}
		f.d.probes.Wait()
		f.set(allows)
		if len(f.notices) != 0 {
			t.Errorf("got a second notice: %+v, want length 0", <-f.notices)
		}
		f.calls() // drops the probe
		f.requireCalls("closed", 1, true, false, 1)
	}
}

// TestCloseClosesConnections checks that no idle connection remains.
func TestCloseClosesConnections(t *testing.T) {
	f := newFixture(t)
	f.set(allows)
	f.requireCalls("it is there", 1, true, false, 1)
	f.d.Close()
	<-f.closed
}

// TestTypeLabels checks the label values, which differ between metrics in Kubernetes.
func TestTypeLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	for _, hookType := range []string{typeMutating, typeValidating} {
		m.observeConditions("n", hookType, "CREATE", 0)
		m.observeExclusion("n", hookType, "CREATE")
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range families {
		for _, v := range f.GetMetric() {
			for _, l := range v.GetLabel() {
				if l.GetName() == "type" {
					got[f.GetType().String()+" "+l.GetValue()] = true
				}
			}
		}
	}
	if want := "map[COUNTER admit:true COUNTER validate:true HISTOGRAM mutating:true HISTOGRAM validating:true]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestSeriesAreRemovedWithWebhook creates and deletes many webhooks.
func TestSeriesAreRemovedWithWebhook(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	configured := map[string]bool{"kept": true}
	for _, hookType := range []string{typeMutating, typeValidating} {
		m.keepWhileConfigured(hookType, func() (map[string]bool, bool) { return configured, true })
	}
	use := func(name string) {
		for _, hookType := range []string{typeMutating, typeValidating} {
			m.observeCall(name, hookType, "CREATE", 0, false, 200)
			m.observeRejection(name, hookType, "CREATE", noError, 400)
			m.observeFailOpen(name, hookType)
			m.observeConditions(name, hookType, "CREATE", 0)
			m.observeExclusion(name, hookType, "CREATE")
			m.observeOpened(name, hookType)()
			m.observeSkipped(name, hookType)
		}
	}
	series := func() (n int) {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	use("kept")
	before := series()
	for i := range 3 * maxHooks {
		use(fmt.Sprint("hook", i))
	}
	use(otherHook)
	if n, most := series(), 2*before; n > most {
		t.Errorf("%d series after the webhooks are gone, want at most %d", n, most)
	}
}

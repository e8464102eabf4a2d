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

	"binnacle/libs/authorizer"
	"binnacle/libs/pipetest"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// silent is a webhook that leaves questions unanswered, and the time of its breaker.
type silent struct {
	t    *testing.T
	d    *dispatcher
	h    *hook
	told chan Notice
	// closed are connections.
	closed chan struct{}
	// gate is open when connections may be made.
	gate  chan struct{}
	mu    sync.Mutex
	now   time.Time
	asked []bool // dry runs
	// answer says what becomes of a question; one that does not write cuts the connection.
	answer func(w http.ResponseWriter, uid string)
}

func cuts(http.ResponseWriter, string) {}

func allows(w http.ResponseWriter, uid string) {
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, uid)
}

func newSilent(t *testing.T, change ...func(*webhook)) *silent {
	t.Helper()
	s := &silent{t: t, now: time.Unix(1000, 0), answer: cuts, told: make(chan Notice, 8), closed: make(chan struct{}, 100), gate: make(chan struct{})}
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
		s.asked = append(s.asked, q.Request.DryRun)
		answer := s.answer
		s.mu.Unlock()
		written := &counting{ResponseWriter: w}
		if answer(written, q.Request.UID); !written.any {
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
		Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Notify: func(_ context.Context, n Notice) { s.told <- n },
		Ways: webhookclient.Ways{URLs: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-s.gate:
				return l.Dial(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}},
	}, sortValidating, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.d.Close)
	s.d.clients.breakers.now = func() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.now }
	url, none := server.URL, admissionv1.SideEffectClassNone
	w := webhook{ValidatingWebhook: admissionv1.ValidatingWebhook{
		Name: "h.ex.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
		ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
	}}
	for _, f := range change {
		f(&w)
	}
	s.h = compile(nil, &admissionv1.ValidatingWebhookConfiguration{}, &w)
	s.h.caller = s.d.clients.caller("h", s.h, w.ClientConfig)
	return s
}

// counting tells whether anything was written.
type counting struct {
	http.ResponseWriter
	any bool
}

func (c *counting) Write(p []byte) (int, error) { c.any = true; return c.ResponseWriter.Write(p) }

func (c *counting) Flush() { c.any = true; c.ResponseWriter.(http.Flusher).Flush() }

func (s *silent) set(answer func(http.ResponseWriter, string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *silent) later(d time.Duration) { s.mu.Lock(); defer s.mu.Unlock(); s.now = s.now.Add(d) }

// questions since the last time that it was called.
func (s *silent) questions() (dry []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dry, s.asked = s.asked, nil
	return dry
}

// ask asks from a place: whether it was answered, and whether that was refused without asking.
func (s *silent) ask(from string) (ok, unasked bool) {
	_, err := s.h.call(s.t.Context(), about(from), false)
	var f *failure
	return err == nil, errors.As(err, &f) && f.open
}

func about(from string) *question {
	return &question{head: []byte(`"name":"c"`), object: []byte("null"), old: []byte("null"), options: []byte("null"), origin: from}
}

// want asks a few times.
func (s *silent) want(what, from string, times int, ok, unasked bool, asked int) {
	s.t.Helper()
	for range times {
		if gotOK, gotUnasked := s.ask(from); gotOK != ok || gotUnasked != unasked {
			s.t.Errorf("%s: answered %t, refused at once %t", what, gotOK, gotUnasked)
		}
	}
	if got := len(s.questions()); got != asked {
		s.t.Errorf("%s: asked %d times, want %d", what, got, asked)
	}
}

// trial asks when it is time to ask aside. Nobody waits for what comes of that.
func (s *silent) trial(from string) {
	s.t.Helper()
	if ok, unasked := s.ask(from); ok || !unasked {
		s.t.Errorf("a trial: answered %t, refused at once %t", ok, unasked)
	}
}

// TestSilence: whose questions are left unanswered three times in a row is refused at once, nobody else.
// Now and then it is asked again, aside and on a dry run, and when that is answered everything is.
func TestSilence(t *testing.T) {
	s := newSilent(t)
	s.want("a first question", "a", 1, false, false, 1)
	s.set(allows)
	s.want("an answer between", "a", 1, true, false, 1)
	s.set(cuts)
	s.want("three in a row", "a", failuresInARow, false, false, failuresInARow)
	s.want("after that", "a", 2, false, true, 0)
	s.want("from elsewhere", "b", 1, false, false, 1)
	s.later(probeInterval - 1)
	s.want("soon after", "a", 1, false, true, 0)
	s.later(1)

	came, leave := make(chan struct{}), make(chan struct{})
	s.set(func(http.ResponseWriter, string) { close(came); <-leave })
	s.trial("a")
	<-came
	if dry := s.questions(); len(dry) != 1 || !dry[0] {
		t.Errorf("the trial: %v", dry)
	}
	s.later(2 * trialAfter)
	s.want("one trial at a time", "a", 1, false, true, 0)
	s.set(cuts)
	close(leave)
	s.d.probes.Wait()
	s.want("the trial was in vain", "a", 1, false, true, 0)
	s.later(probeInterval)
	s.set(allows)
	s.trial("a")
	s.d.probes.Wait()
	s.want("a trial was answered", "a", 2, true, false, 3)
}

// TestSilenceForLong: a request goes through after half a minute, whatever trials come to, and where
// there are none each second.
func TestSilenceForLong(t *testing.T) {
	some := admissionv1.SideEffectClassSome
	for name, c := range map[string]struct {
		change func(*webhook)
		after  time.Duration
	}{
		"it may be asked in vain": {func(*webhook) {}, trialAfter},
		"it must not":             {func(w *webhook) { w.SideEffects = &some }, probeInterval},
	} {
		s := newSilent(t, c.change)
		s.want(name, "a", failuresInARow, false, false, failuresInARow)
		s.later(c.after)
		came, leave := make(chan struct{}), make(chan struct{})
		s.set(func(w http.ResponseWriter, uid string) { close(came); <-leave; allows(w, uid) })
		done := make(chan bool)
		go func() { ok, _ := s.ask("a"); done <- ok }()
		<-came
		s.want(name+": one goes through", "a", 1, false, true, 1)
		s.set(allows)
		close(leave)
		if !<-done {
			t.Errorf("%s: it was not answered", name)
		}
		s.want(name+": it was answered", "a", 1, true, false, 1)
		s.set(cuts)
		s.want(name+": silent again", "a", failuresInARow, false, false, failuresInARow)
		s.later(c.after)
		s.d.Close()
		s.want(name+": after the end", "a", 1, false, true, 0)
	}
}

// TestWhatIsNoSilence of a webhook, however often it comes: that of one whose silence lets pass, the end
// of the time that the client had, answers that are none, and those that came with it.
func TestWhatIsNoSilence(t *testing.T) { synctest.Test(t, whatIsNoSilence) }

func whatIsNoSilence(t *testing.T) {
	const often = failuresInARow + 1
	ignore, second := admissionv1.Ignore, int32(1)
	s := newSilent(t, func(w *webhook) { w.FailurePolicy = &ignore })
	s.want("it lets pass", "a", often, false, false, often)
	s = newSilent(t)
	s.set(func(w http.ResponseWriter, _ string) { fmt.Fprint(w, "{}") })
	s.want("no answer", "a", often, false, false, often)
	came, leave := make(chan struct{}), make(chan struct{})
	s.set(func(http.ResponseWriter, string) { came <- struct{}{}; <-leave })
	for range often {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-came; cancel() }()
		if _, err := s.h.call(ctx, about("a"), false); err == nil {
			t.Error("it was answered")
		}
	}
	close(leave)
	s.set(cuts)
	s.questions()
	s.want("its client went", "a", 1, false, false, 1)

	// An answer that has begun, and does not end in the webhook's time, is none.
	s = newSilent(t, func(w *webhook) { w.TimeoutSeconds = &second })
	end := make(chan struct{})
	s.set(func(w http.ResponseWriter, _ string) { _ = http.NewResponseController(w).Flush(); <-end })
	s.want("half an answer", "a", failuresInARow, false, false, failuresInARow)
	s.want("half an answer, after that", "a", 1, false, true, 0)
	close(end)
}

// TestCrowdsAreNoSilence: an answer for which there was no place says that its webhook is there.
func TestCrowdsAreNoSilence(t *testing.T) {
	s := newSilent(t)
	s.d.clients.answers.Patience = time.Hour
	end := make(chan struct{})
	huge := strings.Repeat("x", 3<<19)
	s.set(func(w http.ResponseWriter, _ string) {
		fmt.Fprint(w, huge)
		_ = http.NewResponseController(w).Flush()
		<-end
	})
	slow, quick := *s.h, *s.h
	slow.timeout, quick.timeout = time.Hour, 100*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var holders sync.WaitGroup
	for range 8 {
		holders.Go(func() { _, _, _ = slow.send(ctx, about("a"), "u", false) })
	}
	for {
		_, how, err := quick.send(t.Context(), about("a"), "u", false)
		if err == nil || quick.timeout > time.Minute {
			t.Errorf("there was a place: %v", err)
			break
		}
		if !strings.Contains(err.Error(), "too many large answers") { // the others have not got that far
			quick.timeout *= 2
			continue
		}
		if how != answered {
			t.Errorf("it got to %d: %v", how, err)
		}
		break
	}
	cancel()
	close(end)
	holders.Wait()
}

// TestUnreachedAfterTheEnd: nobody looks whether a webhook can be reached again, or is told of it.
func TestUnreachedAfterTheEnd(t *testing.T) {
	s := newSilent(t)
	s.d.Close()
	for range failuresInARow + 1 {
		s.h.caller.breaker.note(s.h, about("a"), unreached, errors.New("gone"))
	}
	s.d.probes.Wait()
	if len(s.told) != 0 || s.h.caller.breaker.open {
		t.Errorf("told %v", <-s.told)
	}
}

// TestOneProbe looks whether a webhook can be reached, however many find that it cannot.
func TestOneProbe(t *testing.T) {
	for sort, kind := range map[string]string{sortValidating: "ValidatingWebhookConfiguration", sortMutating: "MutatingWebhookConfiguration"} {
		s := newSilent(t)
		b := s.h.caller.breaker
		b.sort, s.gate = sort, make(chan struct{})
		for range 3 * failuresInARow {
			b.note(s.h, about("a"), unreached, errors.New("gone"))
		}
		if n := <-s.told; n.Kind != kind || n.Answers || n.Reason != "gone" {
			t.Errorf("told %+v", n)
		}
		s.want("open", "a", 1, false, true, 0)
		s.want("open for everybody", "b", 1, false, true, 0)
		close(s.gate)
		if n := <-s.told; n.Kind != kind || !n.Answers {
			t.Errorf("told %+v", n)
		}
		s.d.probes.Wait()
		if s.set(allows); len(s.told) != 0 {
			t.Errorf("told twice: %+v", <-s.told)
		}
		s.questions() // the probe is none, but comes by
		s.want("closed", "a", 1, true, false, 1)
	}
}

// TestConnectionsAreLetGo with who is configured no more.
func TestConnectionsAreLetGo(t *testing.T) {
	s := newSilent(t)
	s.set(allows)
	s.want("it is there", "a", 1, true, false, 1)
	s.d.Close()
	<-s.closed
}

// TestLabels are those of Kubernetes, which has several words for a sort.
func TestLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	for _, sort := range []string{sortMutating, sortValidating} {
		m.evaluated("n", sort, "CREATE", 0)
		m.excluded("n", sort, "CREATE")
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
		t.Errorf("%v", got)
	}
}

// TestSeriesGoWithTheirWebhook creates and deletes many webhooks.
func TestSeriesGoWithTheirWebhook(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	configured := map[string]bool{"kept": true}
	for _, sort := range []string{sortMutating, sortValidating} {
		m.keepWhileConfigured(sort, func() (map[string]bool, bool) { return configured, true })
	}
	use := func(name string) {
		for _, sort := range []string{sortMutating, sortValidating} {
			m.observe(name, sort, "CREATE", 0, false, 200)
			m.rejected(name, sort, "CREATE", noError, 400)
			m.failedOpen(name, sort)
			m.evaluated(name, sort, "CREATE", 0)
			m.excluded(name, sort, "CREATE")
			m.opened(name, sort)()
			m.shortened(name, sort)
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

// TestOrigins are namespaces, and users of what stands in none.
func TestOrigins(t *testing.T) {
	ada := &authorizer.User{Name: "ada"}
	for want, r := range map[string]*admission.Request{
		"namespace ns": {Namespace: "ns", User: ada}, "user ada": {User: ada}, "namespace ": {},
	} {
		if got := originOf(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz/webhook"
)

type status = authorizationv1.SubjectAccessReviewStatus

func (r *rig) ask(t *testing.T, a *authorizer.Attributes) string {
	t.Helper()
	d, reason, err := r.Authorize(request.WithUser(t.Context(), a.User), a)
	text := d.String()
	if reason != "" {
		text += " " + reason
	}
	if err != nil {
		text += " error"
	}
	return text
}

func TestDecisionsOfTheService(t *testing.T) {
	r := newRig(t, nil)
	for name, c := range map[string]struct {
		status status
		want   string
	}{
		"allow":   {status{Allowed: true, Reason: "yes"}, "allowed yes"},
		"deny":    {status{Denied: true, Reason: "never"}, "denied never"},
		"neither": {status{Reason: "perhaps"}, "no-opinion perhaps"},
		"both":    {status{Allowed: true, Denied: true}, "denied error"},
	} {
		r.service.answer = func(_ http.ResponseWriter, _ map[string]any, s *status) bool { *s = c.status; return false }
		for range 2 { // from the service, then from the cache
			if got := r.ask(t, question(name)); got != c.want {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
			}
		}
	}
	if n := r.service.asked.Load(); n != 4 {
		t.Errorf("asked %d times", n)
	}
	if rules, err := r.RulesFor(t.Context(), &authorizer.User{}, "a"); !rules.Incomplete || err == nil {
		t.Error("a service that lists no rules is said to have listed all")
	}
}

// TestFieldsOfAnotherCaseSayNothing, as in Kubernetes.
func TestFieldsOfAnotherCaseSayNothing(t *testing.T) {
	r := newRig(t, nil)
	for said, want := range map[string]string{
		`{"Allowed":true}`:                 "no-opinion",
		`{"allowed":false,"ALLOWED":true}`: "no-opinion",
		`{"denied":true,"Denied":false}`:   "denied",
	} {
		r.service.answer = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
			_, _ = fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, said)
			return true
		}
		if got := r.ask(t, question(said)); got != want {
			t.Errorf("%s: got %q, want %q", said, got, want)
		}
	}
}

// TestWaitingIsToldOf: as long as the service is asked, and not where its decision is known.
func TestWaitingIsToldOf(t *testing.T) {
	var away, asides atomic.Int32
	r := newRig(t, func(c *webhook.Config) {
		c.Aside = func(context.Context) func() {
			asides.Add(1)
			away.Add(1)
			return func() { away.Add(-1) }
		}
	})
	r.service.answer = func(_ http.ResponseWriter, _ map[string]any, s *status) bool {
		if away.Load() != 1 {
			t.Error("nobody is told that the request waits")
		}
		*s = status{Allowed: true}
		return false
	}
	for range 2 {
		if got := r.ask(t, question("a")); got != "allowed" {
			t.Error(got)
		}
	}
	if asides.Load() != 1 || away.Load() != 0 {
		t.Errorf("told of %d times, %d last", asides.Load(), away.Load())
	}
}

func TestWhatIsSent(t *testing.T) {
	a := question("x")
	a.Verb, a.Name = "list", ""
	a.FieldSelector = fields.ParseSelectorOrDie("spec.nodeName=n,a!=b").Requirements()
	selector, err := labels.Parse("x in (b,a),!y,z=1,n>3")
	if err != nil {
		t.Fatal(err)
	}
	a.LabelSelector, _ = selector.Requirements()
	const common = `"extra":{"scope":["a","b"]},%s:["dev"],"resourceAttributes":{` +
		`"fieldSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b"]},{"key":"spec.nodeName","operator":"In","values":["n"]}]},` +
		`"labelSelector":{"requirements":[{"key":"x","operator":"In","values":["a","b"]},{"key":"y","operator":"DoesNotExist"},{"key":"z","operator":"In","values":["1"]}]},` +
		`"namespace":"ns","resource":"pods","verb":"list","version":"v1"},"uid":"u","user":"alice"}`
	for version, groups := range map[string]string{"v1": `"groups"`, "v1beta1": `"group"`} {
		r := newRig(t, func(c *webhook.Config) { c.Version = version })
		var sent []string
		r.service.answer = func(_ http.ResponseWriter, spec map[string]any, _ *status) bool {
			b, err := json.Marshal(spec)
			if err != nil {
				t.Error(err)
			}
			sent = append(sent, string(b))
			return false
		}
		r.ask(t, a)
		r.ask(t, &authorizer.Attributes{User: &authorizer.User{Name: "bob"}, Verb: "get", Path: "/x"})
		want := "{" + fmt.Sprintf(common, groups)
		if len(sent) != 2 || sent[0] != want || sent[1] != `{"nonResourceAttributes":{"path":"/x","verb":"get"},"user":"bob"}` {
			t.Errorf("%s: sent %s\nwant %s", version, sent, want)
		}
	}
}

func TestHowLongDecisionsAreKept(t *testing.T) {
	r := newRig(t, nil)
	r.service.answer = func(_ http.ResponseWriter, spec map[string]any, s *status) bool {
		s.Allowed = spec["resourceAttributes"].(map[string]any)["name"] == "yes"
		return false
	}
	times := func(want int64, what string) {
		t.Helper()
		if got := r.service.asked.Swap(0); got != want {
			t.Errorf("%s: asked %d times, want %d", what, got, want)
		}
	}
	both := func() { r.ask(t, question("yes")); r.ask(t, question("no")) }
	both()
	both()
	times(2, "at once")
	r.clock.add(30 * time.Second)
	both()
	times(1, "after the time of refusals")
	r.clock.add(5 * time.Minute)
	both()
	times(2, "after the time of permissions")
	big := question(strings.Repeat("x", 10_000))
	r.ask(t, big)
	r.ask(t, big)
	times(2, "an oversized question")
	r.service.answer = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
		w.Header().Set("Cache-Control", "no-store")
		return false
	}
	r.ask(t, question("node"))
	r.ask(t, question("node"))
	times(2, "an answer that is not to be kept")
	r.service.answer = func(_ http.ResponseWriter, _ map[string]any, s *status) bool {
		s.Allowed, s.Denied = true, true
		return false
	}
	r.ask(t, question("contradictory"))
	r.clock.add(30 * time.Second)
	r.ask(t, question("contradictory"))
	times(2, "a contradiction is a refusal")
}

// TestQuestionsAreToldApart asks what differs in one thing each.
func TestQuestionsAreToldApart(t *testing.T) {
	r := newRig(t, nil)
	sel := func(s string) fields.Requirements { return fields.ParseSelectorOrDie(s).Requirements() }
	lab := func(s string) labels.Requirements {
		p, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := p.Requirements()
		return out
	}
	changes := []func(*authorizer.Attributes){
		func(*authorizer.Attributes) {},
		func(a *authorizer.Attributes) { a.User.Name = "bob" },
		func(a *authorizer.Attributes) { a.User.UID = "v" },
		func(a *authorizer.Attributes) { a.User.Groups = []string{"de", "v"} },
		func(a *authorizer.Attributes) { a.User.Groups = nil },
		func(a *authorizer.Attributes) { a.User.Extra = nil },
		func(a *authorizer.Attributes) { a.User.Extra = map[string][]string{"scope": {"a"}, "b": {}} },
		func(a *authorizer.Attributes) { a.Verb = "list" },
		func(a *authorizer.Attributes) { a.Group = "apps" },
		func(a *authorizer.Attributes) { a.Version = "v2" },
		func(a *authorizer.Attributes) { a.ResourceName = "jobs" },
		func(a *authorizer.Attributes) { a.Subresource = "log" },
		func(a *authorizer.Attributes) { a.Namespace = "" },
		func(a *authorizer.Attributes) { a.Name = "" },
		func(a *authorizer.Attributes) { a.FieldSelector = sel("a=b") },
		func(a *authorizer.Attributes) { a.FieldSelector = sel("a!=b") },
		func(a *authorizer.Attributes) { a.LabelSelector = lab("a=b") },
		func(a *authorizer.Attributes) { a.LabelSelector = lab("a in (b,c)") },
		func(a *authorizer.Attributes) { a.LabelSelector = lab("a") },
		func(a *authorizer.Attributes) { a.Resource, a.Path = false, "/x" },
		func(a *authorizer.Attributes) { a.User = nil },
	}
	for range 2 {
		for _, change := range changes {
			a := question("x")
			change(a)
			r.ask(t, a)
		}
	}
	if n := r.service.asked.Load(); n != int64(len(changes)) {
		t.Errorf("%d questions were asked %d times", len(changes), n)
	}
}

func TestOneFlightPerQuestion(t *testing.T) {
	r := newRig(t, nil)
	release, arrived := make(chan struct{}), make(chan struct{}, 1)
	r.service.answer = func(_ http.ResponseWriter, _ map[string]any, s *status) bool {
		arrived <- struct{}{}
		<-release
		s.Allowed = true
		return false
	}
	leaver, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := r.Authorize(leaver, question("x"))
		left <- err
	}()
	<-arrived
	var wg sync.WaitGroup
	var allowed atomic.Int64
	for range 20 {
		wg.Go(func() {
			if d, _, _ := r.Authorize(t.Context(), question("x")); d == authorizer.Allow {
				allowed.Add(1)
			}
		})
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	close(release)
	wg.Wait()
	if n := r.service.asked.Load(); n != 1 || allowed.Load() != 20 {
		t.Errorf("asked %d times, %d allowed", n, allowed.Load())
	}
}

// TestAHangingServiceHoldsFewRequests keeps it from answering: what is kept goes
// on, and of one user no more than half of those who may wait do.
func TestAHangingServiceHoldsFewRequests(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	r.service.answer = func(_ http.ResponseWriter, spec map[string]any, s *status) bool {
		if spec["resourceAttributes"].(map[string]any)["name"] != "kept" && spec["user"] != "bob" {
			<-release
		}
		s.Allowed = true
		return false
	}
	if got := r.ask(t, question("kept")); got != "allowed" {
		t.Fatal(got)
	}
	const askers, held = 220, 200
	answers := make(chan string, askers)
	var wg sync.WaitGroup
	for range askers {
		wg.Go(func() { answers <- r.ask(t, question("x")) })
	}
	for range askers - held {
		if got := <-answers; got != "no-opinion error" {
			t.Errorf("who found no room: %s", got)
		}
	}
	if got := r.ask(t, question("kept")); got != "allowed" {
		t.Errorf("what is kept: %s", got)
	}
	other := question("x")
	other.User = &authorizer.User{Name: "bob"}
	if got := r.ask(t, other); got != "allowed" {
		t.Errorf("another user: %s", got)
	}
	close(release)
	wg.Wait()
	for range held {
		if got := <-answers; got != "allowed" {
			t.Errorf("who waited: %s", got)
		}
	}
}

func TestFailures(t *testing.T) {
	fail := func(code, times int) func(http.ResponseWriter, map[string]any, *status) bool {
		var n atomic.Int64
		return func(w http.ResponseWriter, _ map[string]any, s *status) bool {
			s.Allowed = true
			if n.Add(1) <= int64(times) {
				w.WriteHeader(code)
				return true
			}
			return false
		}
	}
	write := func(text string) func(http.ResponseWriter, map[string]any, *status) bool {
		return func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
			_, _ = w.Write([]byte(text))
			return true
		}
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, map[string]any, *status) bool
		want   string
		asked  int64
	}{
		"once unavailable":  {fail(503, 1), "allowed", 2},
		"busy":              {fail(429, 2), "allowed", 3},
		"always broken":     {fail(500, 99), "FAIL error", 4},
		"refuses to answer": {fail(403, 99), "FAIL error", 1},
		"no json":           {write("hello"), "FAIL error", 1},
		"cut short": {func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
			w.Header().Set("Content-Length", "1000")
			return write(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`)(w, nil, nil)
		}, "FAIL error", 4},
		"a refusal that cannot be read": {write(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"denied":"true"}}`), "FAIL error", 1},
		"another kind":                  {write(`{"apiVersion":"v1","kind":"Status"}`), "FAIL error", 1},
		"another object":                {write(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","status":{"allowed":true}}`), "FAIL error", 1},
		"another version":               {write(`{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","status":{"allowed":true}}`), "FAIL error", 1},
		"another case of letters":       {write(`{"apiVersion":"authorization.k8s.io/v1","Kind":"SubjectAccessReview","status":{"allowed":true}}`), "FAIL error", 1},
		"too long":                      {write(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}` + strings.Repeat(" ", 2<<20)), "FAIL error", 1},
	} {
		for policy, decision := range map[string]authorizer.Decision{"no-opinion": authorizer.NoOpinion, "denied": authorizer.Deny} {
			r := newRig(t, func(c *webhook.Config) { c.FailureDecision = decision })
			r.service.answer = c.answer
			want := strings.Replace(c.want, "FAIL", policy, 1)
			if c.want == "allowed" && policy == "denied" {
				continue // the answer's counter is used up
			}
			if got := r.ask(t, question("x")); got != want || r.service.asked.Load() != c.asked {
				t.Errorf("%s, %s: %q after %d questions, want %q after %d", name, policy, got, r.service.asked.Load(), want, c.asked)
			}
			if c.want != "allowed" { // what failed is not kept
				r.service.answer = fail(0, 0)
				if got := r.ask(t, question("x")); got != "allowed" {
					t.Errorf("%s: %q after it healed", name, got)
				}
			}
		}
	}
}

// TestAnEndlessAnswerIsNotRead: the service notices that nobody reads on.
func TestAnEndlessAnswerIsNotRead(t *testing.T) {
	const whole = 32 << 20 // much more than lies in between
	r := newRig(t, nil)
	left := make(chan bool, 1)
	r.service.answer = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
		part := []byte(strings.Repeat(" ", 64<<10))
		for range whole / len(part) {
			if _, err := w.Write(part); err != nil {
				left <- true
				return true
			}
		}
		left <- false
		return true
	}
	if got := r.ask(t, question("x")); got != "no-opinion error" {
		t.Errorf("decided %q", got)
	}
	if !<-left {
		t.Errorf("an answer of %d bytes was read", whole)
	}
}

// TestAnAnswerOfManyValuesDecidesNothing, and is not decoded.
func TestAnAnswerOfManyValuesDecidesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.service.answer = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
		fmt.Fprint(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true},"spec":{"groups":[""`, strings.Repeat(`,""`, 300_000), `]}}`)
		return true
	}
	if got := r.ask(t, question("x")); got != "no-opinion error" {
		t.Errorf("decided %q", got)
	}
}

func TestNothingTakesLongerThanTheTimeout(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, func(c *webhook.Config) { c.Timeout = 50 * time.Millisecond })
	r.service.answer = func(http.ResponseWriter, map[string]any, *status) bool { <-release; return false }
	_, _, err := r.Authorize(t.Context(), question("x")) // ends, because of the timeout alone
	close(release)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
}

func TestBrokenKubeconfigs(t *testing.T) {
	s := newService(t)
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"absent": filepath.Join(dir, "none"), "broken": broken,
		"ftp":        kubeconfig(t, s.Server, strings.Replace(s.URL, "https", "ftp", 1)),
		"parameters": kubeconfig(t, s.Server, s.URL+"/?a=b"),
	} {
		if _, err := webhook.New(webhook.Config{KubeconfigFile: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestServerWithoutTLSIsAllowed checks that an http server is accepted with a
// warning in the log.
func TestServerWithoutTLSIsAllowed(t *testing.T) {
	s := newService(t)
	var log strings.Builder
	z, err := webhook.New(webhook.Config{
		KubeconfigFile: kubeconfig(t, s.Server, strings.Replace(s.URL, "https", "http", 1)),
		Metrics:        webhook.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	z.Close()
	if !strings.Contains(log.String(), "not encrypted") {
		t.Errorf("log is %q", log.String())
	}
}

// position is that of all kinds at a revision.
func position(n int64) rbac.Position { return rbac.Position{n, n, n, n} }

func TestAPolicyChangeEmptiesTheCache(t *testing.T) {
	r := newRig(t, nil)
	header := ""
	r.service.answer = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		if header != "" {
			w.Header().Set(rbac.PositionHeader, header)
		}
		s.Allowed = true
		return false
	}
	asks := func(want int64, what string) {
		t.Helper()
		r.ask(t, question("x"))
		if got := r.service.asked.Swap(0); got != want {
			t.Errorf("%s: asked %d times, want %d", what, got, want)
		}
	}
	header = "5"
	asks(1, "first")
	asks(0, "kept")
	r.PolicyChanged(rbac.Change{Position: position(5), All: true})
	asks(1, "after a change")
	asks(0, "kept again, as it was decided at the change")
	r.PolicyChanged(rbac.Change{Position: position(5)})
	asks(0, "a change that affects no decision")
	header = "7"
	r.PolicyChanged(rbac.Change{Position: position(6), All: true})
	asks(1, "after another change")
	asks(0, "kept, as it was decided after the change")
	sent := r.service.answer
	r.service.answer = func(w http.ResponseWriter, spec map[string]any, s *status) bool {
		r.PolicyChanged(rbac.Change{Position: position(7), All: true})
		return sent(w, spec, s)
	}
	r.PolicyChanged(rbac.Change{Position: rbac.Position{7, 6, 6, 6}, All: true})
	asks(1, "a change while it is asked")
	asks(0, "kept, as it was decided after that change")
	r.service.answer = sent
	header = "nonsense"
	r.PolicyChanged(rbac.Change{Position: position(8), All: true})
	asks(1, "a header that cannot be read")
	asks(1, "is not kept")
	header = ""
	asks(1, "without a header")
	asks(0, "kept, as nothing changed since it was asked")
}

// TestAPolicyThatWentBack: positions of before count no more, and for a while nothing
// is kept, because services that have not noticed tell positions that seem newer.
func TestAPolicyThatWentBack(t *testing.T) {
	r := newRig(t, nil)
	r.service.answer = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		w.Header().Set(rbac.PositionHeader, position(50).String())
		s.Allowed = true
		return false
	}
	asks := func(want int64, what string) {
		t.Helper()
		r.ask(t, question("x"))
		if got := r.service.asked.Swap(0); got != want {
			t.Errorf("%s: asked %d times, want %d", what, got, want)
		}
	}
	r.PolicyChanged(rbac.Change{Position: position(40), All: true})
	asks(1, "first")
	asks(0, "kept")
	r.PolicyChanged(rbac.Change{Position: position(10), All: true})
	asks(1, "after the store went back")
	asks(1, "not kept")
	r.clock.add(time.Minute)
	asks(1, "when all have noticed")
	asks(0, "kept again")
}

// TestOlderDecisionsAreNeverKept races questions with changes of the policy:
// whatever is allowed from the cache was decided at the newest policy that was
// seen before the question, or after it.
func TestOlderDecisionsAreNeverKept(t *testing.T) {
	for _, tells := range []bool{true, false} {
		r := newRig(t, nil)
		var policy, seen atomic.Int64 // at the service, at the front end
		r.service.answer = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
			at := policy.Load()
			if tells {
				w.Header().Set(rbac.PositionHeader, position(at).String())
			}
			s.Allowed, s.Reason = true, fmt.Sprint(at)
			return false
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					least := seen.Load()
					_, reason, err := r.Authorize(t.Context(), question(fmt.Sprint(i%2)))
					var at int64
					if _, scanErr := fmt.Sscan(reason, &at); err != nil || scanErr != nil || at < least {
						t.Errorf("decided at %q although %d was seen before: %v %v", reason, least, err, scanErr)
						return
					}
				}
			})
		}
		for i := int64(1); i <= 40; i++ {
			policy.Store(i)
			r.PolicyChanged(rbac.Change{Position: position(i), All: true})
			seen.Store(i)
			r.ask(t, question("0"))
		}
		close(stop)
		wg.Wait()
	}
}

// TestALaggingServiceNeverDecidesOnWhatIsOver races questions with changes that
// the service sees after the front end.
func TestALaggingServiceNeverDecidesOnWhatIsOver(t *testing.T) {
	r := newRig(t, nil)
	var policy, seen atomic.Int64 // at the service, at the front end
	r.service.answer = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		at := policy.Load()
		w.Header().Set(rbac.PositionHeader, position(at).String())
		s.Allowed, s.Reason = true, fmt.Sprint(at)
		return false
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				least := seen.Load()
				_, reason, err := r.Authorize(t.Context(), question(fmt.Sprint(i%2)))
				var at int64
				if _, scanErr := fmt.Sscan(reason, &at); err != nil || scanErr != nil || at < least {
					t.Errorf("decided at %q although %d was seen before: %v %v", reason, least, err, scanErr)
					return
				}
			}
		})
	}
	for i := int64(1); i <= 20; i++ {
		r.PolicyChanged(rbac.Change{Position: position(i), All: true})
		seen.Store(i)
		asked := r.service.asked.Load()
		for r.service.asked.Load() < asked+1 && !t.Failed() { // somebody is told of an older policy
			runtime.Gosched()
		}
		policy.Store(i)
	}
	close(stop)
	wg.Wait()
}

// TestALateServiceCatchesUp lets the service see a change after the front end.
func TestALateServiceCatchesUp(t *testing.T) {
	for _, behind := range []rbac.Position{position(1), {2, 2, 1, 2}} {
		r := newRig(t, nil)
		var at atomic.Pointer[rbac.Position]
		at.Store(&behind)
		newest := position(2)
		r.service.answer = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
			if r.service.asked.Load() == 3 {
				at.Store(&newest)
			}
			w.Header().Set(rbac.PositionHeader, at.Load().String())
			s.Allowed = *at.Load() != newest // the change takes the permission away
			return false
		}
		r.PolicyChanged(rbac.Change{Position: newest, All: true})
		for range 2 { // from the service, then from the cache
			if got := r.ask(t, question("x")); got != "no-opinion" {
				t.Errorf("%s: an older policy decided: %s", &behind, got)
			}
		}
		if n := r.service.asked.Load(); n != 3 {
			t.Errorf("%s: asked %d times", &behind, n)
		}
	}
}

// TestAServiceThatStaysBehindIsNotKept: its word counts for the question alone.
func TestAServiceThatStaysBehindIsNotKept(t *testing.T) {
	r := newRig(t, nil)
	r.service.answer = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		w.Header().Set(rbac.PositionHeader, position(1).String())
		s.Allowed = true
		return false
	}
	r.PolicyChanged(rbac.Change{Position: position(2), All: true})
	for range 2 {
		if got := r.ask(t, question("x")); got != "allowed" {
			t.Error(got)
		}
		if n := r.service.asked.Swap(0); n < 2 || n > 8 {
			t.Errorf("asked %d times: it was not waited for or for too long, or an older decision was kept", n)
		}
	}
}

// TestQuestionsDoNotJoinThoseOfBeforeAChange asks of a service that does not tell
// its position.
func TestQuestionsDoNotJoinThoseOfBeforeAChange(t *testing.T) {
	r := newRig(t, nil)
	release, arrived := make(chan struct{}), make(chan struct{})
	r.service.answer = func(_ http.ResponseWriter, _ map[string]any, s *status) bool {
		arrived <- struct{}{}
		<-release
		s.Allowed = true
		return false
	}
	done := make(chan struct{})
	go func() { defer close(done); r.ask(t, question("x")) }()
	<-arrived
	r.PolicyChanged(rbac.Change{Position: position(2), All: true}) // while it is under way
	later := make(chan struct{})
	go func() { defer close(later); r.ask(t, question("x")) }()
	select {
	case <-arrived:
	case <-time.After(20 * time.Second):
		t.Error("the question after the change joined the one before it")
	}
	close(release)
	<-done
	<-later
}

// brokenTransport panics, as code of others may.
type brokenTransport struct{ http.RoundTripper }

func (brokenTransport) RoundTrip(*http.Request) (*http.Response, error) { panic("a library") }

func TestAPanicDecidesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.Break(brokenTransport{})
	for range 2 {
		if got := r.ask(t, question("x")); got != "no-opinion error" {
			t.Errorf("got %s", got)
		}
	}
}

func TestTheTimeIsThatOfTheMachine(t *testing.T) {
	r := newRig(t, func(c *webhook.Config) { c.Now = nil })
	r.service.answer = func(_ http.ResponseWriter, _ map[string]any, s *status) bool { s.Allowed = true; return false }
	if got := r.ask(t, question("x")); got != "allowed" {
		t.Error(got)
	}
}

// TestNamespaceChangesInvalidateTheirNamespaceOnly covers services that report their
// position and services that do not.
func TestNamespaceChangesInvalidateTheirNamespaceOnly(t *testing.T) {
	for _, reports := range []bool{true, false} {
		r := newRig(t, nil)
		at := position(1)
		r.service.answer = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
			if reports {
				w.Header().Set(rbac.PositionHeader, at.String())
			}
			s.Allowed = true
			return false
		}
		ask := func(namespace string) int64 {
			q := question("x")
			q.Namespace = namespace
			r.ask(t, q)
			return r.service.asked.Swap(0)
		}
		// asks takes the wanted numbers of calls for the namespaces a and b and for the cluster scope.
		asks := func(what string, want ...int64) {
			t.Helper()
			if got := []int64{ask("a"), ask("b"), ask("")}; !slices.Equal(got, want) {
				t.Errorf("%s: called %v times, want %v", what, got, want)
			}
		}
		r.PolicyChanged(rbac.Change{Position: at, All: true})
		asks("first", 1, 1, 1)
		at[2] = 2
		r.PolicyChanged(rbac.Change{Position: at})
		asks("metadata", 0, 0, 0)
		at[2] = 3
		r.PolicyChanged(rbac.Change{Position: at, Namespaces: map[string]struct{}{"a": {}}})
		asks("a role binding in a", 1, 0, 0)
		asks("cached again", 0, 0, 0)
		at[1] = 4
		r.PolicyChanged(rbac.Change{Position: at, All: true})
		asks("a cluster role", 1, 1, 1)
		asks("cached again", 0, 0, 0)

		// Older changes count for all namespaces once too many namespaces changed, but
		// not for decisions that were made since.
		at[2] = 5
		r.PolicyChanged(rbac.Change{Position: at, Namespaces: map[string]struct{}{"a": {}}})
		for i := range int64(5000) {
			at[2] = 6 + i
			r.PolicyChanged(rbac.Change{Position: at, Namespaces: map[string]struct{}{fmt.Sprint("n", i): {}}})
		}
		asks("a change in many namespaces", 1, 1, 1)
		asks("cached again", 0, 0, 0)
		r.PolicyChanged(rbac.Change{Position: at, Namespaces: map[string]struct{}{"one more": {}}})
		asks("an overflow by an older change", 0, 0, 0)
	}
}

// TestUnrelatedChangesAreNotWaitedFor uses a service that has not seen the last change
// of another namespace.
func TestUnrelatedChangesAreNotWaitedFor(t *testing.T) {
	r := newRig(t, nil)
	r.service.answer = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		w.Header().Set(rbac.PositionHeader, position(1).String())
		s.Allowed = true
		return false
	}
	r.PolicyChanged(rbac.Change{Position: position(1), All: true})
	r.PolicyChanged(rbac.Change{Position: position(2), Namespaces: map[string]struct{}{"other": {}}})
	r.ask(t, question("x"))
	r.ask(t, question("x"))
	if n := r.service.asked.Load(); n != 1 {
		t.Errorf("called %d times, want 1", n)
	}
}

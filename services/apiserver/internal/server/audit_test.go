package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server"
)

// level is a policy that tells of everything at a level.
type level audit.Level

func (l level) Decide(*requestinfo.Info, *request.User) audit.Decision {
	return audit.Decision{Level: audit.Level(l)}
}

// kept is a sink that keeps what it is told, and takes nothing while it fails.
type kept struct {
	mu     sync.Mutex
	events []*audit.Event
	fail   error
}

func (k *kept) Process(_ context.Context, e *audit.Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	e = new(*e)
	e.Annotations = slices.Clone(e.Annotations)
	if e.Object != nil {
		e.Object = new(*e.Object)
	}
	if e.Status != nil {
		e.Status = new(*e.Status)
	}
	k.events = append(k.events, e)
	return nil
}

// stages are what was told, in short: stage, code and user.
func (k *kept) stages() (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		s := e.Stage.String()
		if e.Status != nil {
			s += fmt.Sprint(" ", e.Status.Code)
		}
		if e.User != nil {
			s += " " + e.User.Name
		}
		out = append(out, s)
	}
	return out
}

// nobody lets nobody in.
type nobody struct{}

func (nobody) Authenticate(*http.Request) (*request.User, error) {
	return nil, errors.New("who are you?")
}

type audited struct {
	*kept
	http.Handler
	registry *prometheus.Registry
	ran      int
}

func newAudited(t *testing.T, l audit.Level, change func(*server.Config), mux http.HandlerFunc) *audited {
	t.Helper()
	catalog, err := builtin.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	a := &audited{kept: &kept{}, registry: prometheus.NewRegistry()}
	config := server.Config{
		Mux: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.ran++
			mux(w, r)
		}),
		Responder: responsewriters.Responder{Codec: c}, Authenticator: always{&request.User{Name: "ada"}}, Authorizer: &rules{},
		Metrics: server.NewMetrics(a.registry), Kinds: apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Logger: slog.New(slog.DiscardHandler), RequestTimeout: time.Minute,
		Audit: audit.New(audit.Config{
			Policy: level(l), Sinks: []audit.Sink{a.kept}, Metrics: audit.NewMetrics(a.registry), Logger: slog.New(slog.DiscardHandler), MaxObject: 1 << 20, MaxObjects: 1 << 20,
		}),
	}
	if change != nil {
		change(&config)
	}
	if a.Handler, err = server.Handler(config); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *audited) do(r *http.Request) (rec *httptest.ResponseRecorder, failure any) {
	rec = httptest.NewRecorder()
	defer func() { failure = recover() }()
	a.ServeHTTP(rec, r)
	return rec, nil
}

const (
	auditedList  = "/api/v1/namespaces/a/pods"
	auditedWatch = auditedList + "?watch=1"
)

// TestNobodyEscapesTheAuditLog however a request ends.
func TestNobodyEscapesTheAuditLog(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }
	for name, c := range map[string]struct {
		change func(*server.Config)
		path   string
		header []string
		gone   bool
		mux    http.HandlerFunc
		want   []string
		panics bool
	}{
		"a read":  {mux: answer, want: []string{"RequestReceived ada", "ResponseComplete 200 ada"}},
		"a watch": {path: auditedWatch, mux: answer, want: []string{"RequestReceived ada", "ResponseStarted 200 ada", "ResponseComplete 200 ada"}},
		"a watch that is only flushed": {path: auditedWatch, mux: func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
			want: []string{"RequestReceived ada", "ResponseStarted 200 ada", "ResponseComplete 200 ada"}},
		"a watch without an answer": {path: auditedWatch, mux: func(http.ResponseWriter, *http.Request) {},
			want: []string{"RequestReceived ada", "ResponseStarted 200 ada", "ResponseComplete 200 ada"}},
		"what is announced is no answer": {mux: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) },
			want: []string{"RequestReceived ada", "ResponseComplete 404 ada"}},
		"a panic": {mux: func(http.ResponseWriter, *http.Request) { panic("oh") }, want: []string{"RequestReceived ada", "Panic 500 ada"}, panics: true},
		"cut off": {mux: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: []string{"RequestReceived ada", "Panic 500 ada"}, panics: true},
		"a late panic": {path: auditedWatch, mux: func(w http.ResponseWriter, r *http.Request) { answer(w, r); panic("oh") },
			want: []string{"RequestReceived ada", "ResponseStarted 200 ada", "Panic 500 ada"}, panics: true},
		"gone before it began": {gone: true, mux: answer, want: []string{"RequestReceived ada", "ResponseComplete 200 ada"}},
		"not authenticated":    {change: func(c *server.Config) { c.Authenticator = nobody{} }, want: []string{"ResponseStarted 401"}},
		"a bad timeout":        {path: auditedList + "?timeout=x", want: []string{"ResponseStarted 400"}},
		"all is loaded anew":   {change: func(c *server.Config) { c.Reloading = func(*requestinfo.Info) bool { return true } }, want: []string{"ResponseStarted 429"}},
		"an address for which there is no turn": {path: auditedList + "?labelSelector=" + strings.Repeat("x", 1<<20), gone: true, change: func(c *server.Config) {
			c.LargeRequests = serving.NewLargeRequests(1)
			c.LargeRequests.EnterNow()
		}, want: []string{"ResponseStarted 429"}},
		"may not impersonate": {header: []string{"Impersonate-User", "eve"}, want: []string{"RequestReceived ada", "ResponseComplete 403 ada"}},
		"nobody can decide":   {change: func(c *server.Config) { c.Authorizer = undecidable{} }, want: []string{"RequestReceived ada", "ResponseComplete 500 ada"}},
		"an odd path":         {path: "/api/v1//..;/%2e%2e/x", mux: answer, want: []string{"RequestReceived ada", "ResponseComplete 200 ada"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAudited(t, audit.RequestResponse, c.change, c.mux)
			path := c.path
			if path == "" {
				path = auditedList
			}
			r := httptest.NewRequest("GET", path, nil)
			for i := 0; i < len(c.header); i += 2 {
				r.Header.Set(c.header[i], c.header[i+1])
			}
			if c.gone {
				ctx, leave := context.WithCancel(t.Context())
				leave()
				r = r.WithContext(ctx)
			}
			rec, failure := a.do(r)
			if got := a.stages(); !slices.Equal(got, c.want) {
				t.Errorf("told %q, want %q", got, c.want)
			}
			if (failure != nil) != c.panics {
				t.Errorf("panics with %v", failure)
			}
			if a.events[0].ID != rec.Header().Get("Audit-Id") || a.events[0].ID == "" {
				t.Errorf("told as %q, answered as %q", a.events[0].ID, rec.Header().Get("Audit-Id"))
			}
		})
	}
}

type undecidable struct{}

func (undecidable) Authorize(context.Context, *authz.Attributes) (authz.Decision, string, error) {
	return authz.NoOpinion, "", errors.New("nobody knows")
}

// TestWhatCannotBeToldIsNotDone where the sink says so.
func TestWhatCannotBeToldIsNotDone(t *testing.T) {
	a := newAudited(t, audit.Metadata, nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	a.fail = errors.New("the disk is full")
	rec, _ := a.do(httptest.NewRequest("GET", auditedList, nil))
	if rec.Code != 500 || !strings.Contains(rec.Body.String(), "failed to store audit event") || strings.Contains(rec.Body.String(), "disk") || a.ran != 0 {
		t.Errorf("answered %d %s, ran %d times", rec.Code, rec.Body, a.ran)
	}
	families, err := a.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "apiserver_audit_requests_rejected_total" && f.Metric[0].GetCounter().GetValue() != 1 {
			t.Errorf("counted %v", f)
		}
	}
	a.fail = nil
	if rec, _ := a.do(httptest.NewRequest("GET", auditedList, nil)); rec.Code != 200 || a.ran != 1 {
		t.Errorf("afterwards: %d, ran %d times", rec.Code, a.ran)
	}
}

// TestWhereTheTimeWent is told of slow requests, but not of watches.
func TestWhereTheTimeWent(t *testing.T) {
	for path, want := range map[string]bool{auditedList: true, auditedWatch: false} {
		a := newAudited(t, audit.Metadata, func(c *server.Config) {
			c.Audit.Slow = time.Nanosecond
		}, func(w http.ResponseWriter, r *http.Request) {
			audit.From(r.Context()).Spent(audit.MutatingWebhook, time.Second)
			audit.From(r.Context()).Spent(audit.MutatingWebhook, time.Second)
			_, _ = w.Write(nil)
		})
		a.do(httptest.NewRequest("GET", path, nil))
		told := a.events[len(a.events)-1].Annotations
		if got := told.Get("apiserver.latency.k8s.io/mutating-webhook") == "2s"; got != want {
			t.Errorf("%s: told %v", path, told)
		}
		for _, part := range []string{"total", "authorization", "response-write"} {
			if got := told.Get("apiserver.latency.k8s.io/"+part) != ""; got != want {
				t.Errorf("%s: %s is told: %v", path, part, got)
			}
		}
	}
}

// TestNothingIsToldAtLevelNone, and handlers see the writer that they would see without.
func TestNothingIsToldAtLevelNone(t *testing.T) {
	a := newAudited(t, audit.None, nil, func(w http.ResponseWriter, r *http.Request) {
		if audit.From(r.Context()) != nil || strings.Contains(fmt.Sprintf("%T", w), "audit") {
			t.Errorf("there is a record in %T", w)
		}
	})
	if a.do(httptest.NewRequest("GET", auditedList, nil)); len(a.events) != 0 || a.ran != 1 {
		t.Errorf("told %q", a.stages())
	}
}

// TestTooManyRequestsAreTold: who is refused for that is known.
func TestTooManyRequestsAreTold(t *testing.T) {
	var a *audited
	a = newAudited(t, audit.Metadata, func(c *server.Config) { c.MaxInFlight = 1 }, func(w http.ResponseWriter, _ *http.Request) {
		a.do(httptest.NewRequest("GET", auditedList, nil))
		w.WriteHeader(200)
	})
	a.do(httptest.NewRequest("GET", auditedList, nil))
	if got, want := a.stages(), []string{"RequestReceived ada", "RequestReceived ada", "ResponseComplete 429 ada", "ResponseComplete 200 ada"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// TestWhatIsHeldIsGivenBack; a user holds as much as is free at most.
func TestWhatIsHeldIsGivenBack(t *testing.T) {
	text := []byte(`"` + strings.Repeat("x", 400<<10) + `"`)
	var a *audited
	var inner func()
	a = newAudited(t, audit.RequestResponse, nil, func(w http.ResponseWriter, r *http.Request) {
		rec := audit.From(r.Context())
		rec.Shown(text)
		if next := inner; next != nil {
			inner = nil
			next()
		}
		_, _ = w.Write(text)
	})
	for range 10 { // there is room for each
		a.do(httptest.NewRequest("GET", auditedList, nil))
	}
	inner = func() { a.do(httptest.NewRequest("GET", auditedList, nil)) }
	a.do(httptest.NewRequest("GET", auditedList, nil))
	whole, cut := 0, 0
	for _, e := range a.events {
		if e.Stage == audit.ResponseComplete && e.ResponseObject != nil {
			whole++
		} else if e.Annotations.Get(audit.Truncated) == "true" {
			cut++
		}
	}
	if whole != 11 || cut != 1 {
		t.Errorf("%d whole, %d cut", whole, cut)
	}
}

// TestEscapesCountToo: what is told takes more room than what was answered, where that
// looks like markup.
func TestEscapesCountToo(t *testing.T) {
	for text, want := range map[string]bool{
		strings.Repeat("x", 400<<10):       true,
		strings.Repeat("<", 80<<10):        true,
		strings.Repeat("<", 400<<10):       false,
		strings.Repeat("\u2028", 80<<10):   true,
		strings.Repeat("\u2028x", 150<<10): false,
	} {
		a := newAudited(t, audit.RequestResponse, nil, func(w http.ResponseWriter, r *http.Request) {
			audit.From(r.Context()).Shown([]byte(`"` + text + `"`))
			w.WriteHeader(200)
		})
		a.do(httptest.NewRequest("GET", auditedList, nil))
		last := a.events[len(a.events)-1]
		if got := last.ResponseObject != nil; got != want || len(last.ResponseObject) > 1<<20 || want == (last.Annotations.Get(audit.Truncated) == "true") {
			t.Errorf("%d of %.5q: told %v, %d bytes, %v", len(text), text, got, len(last.ResponseObject), last.Annotations)
		}
	}
}

// BenchmarkAudit is what the filter costs a request, which does nothing else.
func BenchmarkAudit(b *testing.B) {
	for _, l := range []audit.Level{audit.None, audit.Metadata} {
		b.Run(l.String(), func(b *testing.B) {
			t := &testing.T{}
			a := newAudited(t, l, func(c *server.Config) {
				c.Audit = audit.New(audit.Config{Policy: level(l), Sinks: []audit.Sink{nowhere{}}, Metrics: audit.NewMetrics(prometheus.NewRegistry()), MaxObject: 1, MaxObjects: 1})
			}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
			b.ReportAllocs()
			for b.Loop() {
				a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", auditedList+"/p", nil))
			}
		})
	}
}

// nowhere encodes events and forgets them.
type nowhere struct{}

func (nowhere) Process(_ context.Context, e *audit.Event) error {
	e.AppendLine(make([]byte, 0, 2048))
	return nil
}

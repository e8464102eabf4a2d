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

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// levelPolicy is a policy that records all requests at one level.
type levelPolicy audit.Level

func (l levelPolicy) Decide(*requestinfo.Info, *request.User) audit.Decision {
	return audit.Decision{Level: audit.Level(l)}
}

// recordingSink is a sink that records copies of events, or returns failure if it is set.
type recordingSink struct {
	mu      sync.Mutex
	events  []*audit.Event
	failure error
}

func (s *recordingSink) Process(_ context.Context, event *audit.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return s.failure
	}
	event = new(*event)
	event.Annotations = slices.Clone(event.Annotations)
	if event.Object != nil {
		event.Object = new(*event.Object)
	}
	if event.Status != nil {
		event.Status = new(*event.Status)
	}
	s.events = append(s.events, event)
	return nil
}

// stages returns stage, code and user of each event.
func (r *recordingSink) stages() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.events {
		text := event.Stage.String()
		if event.Status != nil {
			text += fmt.Sprint(" ", event.Status.Code)
		}
		if event.User != nil {
			text += " " + event.User.Name
		}
		out = append(out, text)
	}
	return out
}

// rejectingAuthenticator authenticates no request.
type rejectingAuthenticator struct{}

func (rejectingAuthenticator) Authenticate(*http.Request) (*request.User, error) {
	return nil, errors.New("no credentials")
}

// auditFixture is a server with its recorded audit events.
type auditFixture struct {
	*recordingSink
	http.Handler
	registry *prometheus.Registry
	handled  int // number of requests that reached the handler
}

// newAuditFixture returns a server that audits at a level and passes requests to mux. change
// adjusts its configuration.
func newAuditFixture(t *testing.T, level audit.Level, change func(*server.Config), mux http.HandlerFunc) *auditFixture {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	fixture := &auditFixture{recordingSink: &recordingSink{}, registry: prometheus.NewRegistry()}
	config := server.Config{
		Mux: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fixture.handled++
			mux(w, r)
		}),
		Responder:      responsewriters.Responder{Codec: apiCodec},
		Authenticator:  fixedUser{&request.User{Name: "ada"}},
		Authorizer:     &impersonationRules{},
		Metrics:        telemetry.NewMetrics(fixture.registry),
		Kinds:          apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Logger:         slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute,
		Audit: audit.New(audit.Config{
			Policy:     levelPolicy(level),
			Sinks:      []audit.Sink{fixture.recordingSink},
			Metrics:    audit.NewMetrics(fixture.registry),
			Logger:     slog.New(slog.DiscardHandler),
			MaxObject:  1 << 20,
			MaxObjects: 1 << 20,
		}),
	}
	if change != nil {
		change(&config)
	}
	if fixture.Handler, err = server.Handler(config); err != nil {
		t.Fatal(err)
	}
	return fixture
}

// serve sends a request. failure is the value of the handler's panic, or nil.
func (a *auditFixture) serve(r *http.Request) (rec *httptest.ResponseRecorder, failure any) {
	rec = httptest.NewRecorder()
	defer func() { failure = recover() }()
	a.ServeHTTP(rec, r)
	return rec, nil
}

const (
	listPath  = "/api/v1/namespaces/a/pods"
	watchPath = listPath + "?watch=1"
)

// TestEveryOutcomeIsAudited checks the audit events of a request for each way in which it can end.
func TestEveryOutcomeIsAudited(t *testing.T) {
	writeBody := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }
	for name, test := range map[string]struct {
		change     func(*server.Config)
		path       string   // listPath if empty
		header     []string // alternately a name and a value
		clientGone bool
		mux        http.HandlerFunc
		want       []string // events as stage, code and user
		wantPanic  bool     // the filters repeat the panic of the handler
	}{
		"read": {mux: writeBody, want: []string{"RequestReceived ada", "ResponseComplete 200 ada"}},
		"watch": {
			path: watchPath,
			mux:  writeBody,
			want: []string{"RequestReceived ada", "ResponseStarted 200 ada", "ResponseComplete 200 ada"},
		},
		"watch that is only flushed": {
			path: watchPath,
			mux:  func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
			want: []string{"RequestReceived ada", "ResponseStarted 200 ada", "ResponseComplete 200 ada"},
		},
		"watch without a response": {
			path: watchPath,
			mux:  func(http.ResponseWriter, *http.Request) {},
			want: []string{"RequestReceived ada", "ResponseStarted 200 ada", "ResponseComplete 200 ada"},
		},
		"informational response": {
			mux:  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) },
			want: []string{"RequestReceived ada", "ResponseComplete 404 ada"},
		},
		"panic before the response": {
			mux:  func(http.ResponseWriter, *http.Request) { panic("oh") },
			want: []string{"RequestReceived ada", "Panic 500 ada"},
		},
		"aborted response": {
			mux:       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			want:      []string{"RequestReceived ada", "Panic 500 ada"},
			wantPanic: true,
		},
		"panic after the response started": {
			path:      watchPath,
			mux:       func(w http.ResponseWriter, r *http.Request) { writeBody(w, r); panic("oh") },
			want:      []string{"RequestReceived ada", "ResponseStarted 200 ada", "Panic 500 ada"},
			wantPanic: true,
		},
		"client disconnects before the response": {
			clientGone: true,
			mux:        writeBody,
			want:       []string{"RequestReceived ada", "ResponseComplete 200 ada"},
		},
		"failed authentication": {
			change: func(c *server.Config) { c.Authenticator = rejectingAuthenticator{} },
			want:   []string{"ResponseStarted 401"},
		},
		"invalid timeout parameter": {path: listPath + "?timeout=x", want: []string{"ResponseStarted 400"}},
		"resource that is being reloaded": {
			change: func(c *server.Config) { c.Reloading = func(*requestinfo.Info) bool { return true } },
			want:   []string{"ResponseStarted 429"},
		},
		"long URL without a permit": {
			path:       listPath + "?labelSelector=" + strings.Repeat("x", 1<<20),
			clientGone: true,
			change: func(c *server.Config) {
				c.Overload.LargeRequests = limit.New[string](limit.Options{Size: 1})
				c.Overload.LargeRequests.TryAcquire(limit.Claim[string]{})
			},
			want: []string{"ResponseStarted 429"},
		},
		"forbidden impersonation": {
			header: []string{"Impersonate-User", "eve"},
			want:   []string{"RequestReceived ada", "ResponseComplete 403 ada"},
		},
		"failed authorization": {
			change: func(c *server.Config) { c.Authorizer = failingAuthorizer{} },
			want:   []string{"RequestReceived ada", "ResponseComplete 500 ada"},
		},
		"path with dot segments": {
			path: "/api/v1//..;/%2e%2e/x",
			mux:  writeBody,
			want: []string{"RequestReceived ada", "ResponseComplete 200 ada"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newAuditFixture(t, audit.RequestResponse, test.change, test.mux)
			path := test.path
			if path == "" {
				path = listPath
			}
			r := httptest.NewRequest("GET", path, nil)
			for i := 0; i < len(test.header); i += 2 {
				r.Header.Set(test.header[i], test.header[i+1])
			}
			if test.clientGone {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				r = r.WithContext(ctx)
			}
			response, failure := fixture.serve(r)
			if got := fixture.stages(); !slices.Equal(got, test.want) {
				t.Errorf("got events %q, want %q", got, test.want)
			}
			if (failure != nil) != test.wantPanic {
				t.Errorf("got panic %v, want a panic: %t", failure, test.wantPanic)
			}
			if fixture.events[0].ID != response.Header().Get("Audit-Id") || fixture.events[0].ID == "" {
				t.Errorf("got event id %q, want the id %q of the response", fixture.events[0].ID, response.Header().Get("Audit-Id"))
			}
		})
	}
}

// failingAuthorizer cannot decide.
type failingAuthorizer struct{}

func (failingAuthorizer) Authorize(context.Context, *authz.Attributes) (authz.Decision, string, error) {
	return authz.NoOpinion, "", errors.New("no authority")
}

// TestRequestIsRejectedWhenAuditFails checks that a request is not handled if the sink fails.
func TestRequestIsRejectedWhenAuditFails(t *testing.T) {
	fixture := newAuditFixture(t, audit.Metadata, nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	fixture.failure = errors.New("the disk is full")
	rec, _ := fixture.serve(httptest.NewRequest("GET", listPath, nil))
	if rec.Code != 500 || !strings.Contains(rec.Body.String(), "failed to store audit event") ||
		strings.Contains(rec.Body.String(), "disk") || fixture.handled != 0 {
		t.Errorf("got %d %s, handled %d times, want 500 and 0", rec.Code, rec.Body, fixture.handled)
	}
	families, err := fixture.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "apiserver_audit_requests_rejected_total" && family.Metric[0].GetCounter().GetValue() != 1 {
			t.Errorf("metric of rejected requests: got %v, want 1", family)
		}
	}
	fixture.failure = nil
	if rec, _ := fixture.serve(httptest.NewRequest("GET", listPath, nil)); rec.Code != 200 || fixture.handled != 1 {
		t.Errorf("afterwards: got %d, handled %d times, want 200 and 1", rec.Code, fixture.handled)
	}
}

// TestRejectedRequestIsAudited checks that a request rejected by the in-flight limit is recorded
// with its user.
func TestRejectedRequestIsAudited(t *testing.T) {
	var fixture *auditFixture
	oneInFlight := func(c *server.Config) { c.Overload.MaxInFlight = 1 }
	fixture = newAuditFixture(t, audit.Metadata, oneInFlight, func(w http.ResponseWriter, _ *http.Request) {
		fixture.serve(httptest.NewRequest("GET", listPath, nil))
		w.WriteHeader(200)
	})
	fixture.serve(httptest.NewRequest("GET", listPath, nil))
	if got, want := fixture.stages(), []string{
		"RequestReceived ada", "RequestReceived ada", "ResponseComplete 429 ada", "ResponseComplete 200 ada",
	}; !slices.Equal(got, want) {
		t.Errorf("got events %q, want %q", got, want)
	}
}

// TestAuditMemoryIsReleased checks that the memory of recorded objects is released after each
// request. One user gets at most the free memory.
func TestAuditMemoryIsReleased(t *testing.T) {
	text := []byte(`"` + strings.Repeat("x", 400<<10) + `"`) // two fit into the limit of 1 MiB, three do not
	var fixture *auditFixture
	var inner func() // sends a request while the handler of another one holds its object
	fixture = newAuditFixture(t, audit.RequestResponse, nil, func(w http.ResponseWriter, r *http.Request) {
		rec := audit.FromContext(r.Context())
		rec.SetResponseObject(text)
		if next := inner; next != nil {
			inner = nil
			next()
		}
		_, _ = w.Write(text)
	})
	for range 10 { // one after the other
		fixture.serve(httptest.NewRequest("GET", listPath, nil))
	}
	inner = func() { fixture.serve(httptest.NewRequest("GET", listPath, nil)) }
	fixture.serve(httptest.NewRequest("GET", listPath, nil))
	complete, truncated := 0, 0
	for _, e := range fixture.events {
		if e.Stage == audit.ResponseComplete && e.ResponseObject != nil {
			complete++
		} else if e.Annotations.Get(audit.Truncated) == "true" {
			truncated++
		}
	}
	if complete != 11 || truncated != 1 { // the inner request is truncated
		t.Errorf("got %d complete and %d truncated events, want 11 and 1", complete, truncated)
	}
}

// TestEscapedSizeCountsAgainstLimit checks that the size limit applies to the event, in which markup characters
// are escaped.
func TestEscapedSizeCountsAgainstLimit(t *testing.T) {
	for object, isRecorded := range map[string]bool{
		strings.Repeat("x", 400<<10):       true,
		strings.Repeat("<", 80<<10):        true,
		strings.Repeat("<", 400<<10):       false,
		strings.Repeat("\u2028", 80<<10):   true,
		strings.Repeat("\u2028x", 150<<10): false,
	} {
		fixture := newAuditFixture(t, audit.RequestResponse, nil, func(w http.ResponseWriter, r *http.Request) {
			audit.FromContext(r.Context()).SetResponseObject([]byte(`"` + object + `"`))
			w.WriteHeader(200)
		})
		fixture.serve(httptest.NewRequest("GET", listPath, nil))
		last := fixture.events[len(fixture.events)-1]
		if got := last.ResponseObject != nil; got != isRecorded || len(last.ResponseObject) > 1<<20 ||
			isRecorded == (last.Annotations.Get(audit.Truncated) == "true") {
			t.Errorf("%d bytes of %.5q: got recorded = %t, want %t; %d bytes, annotations %v", len(object), object, got, isRecorded,
				len(last.ResponseObject), last.Annotations)
		}
	}
}

// BenchmarkAudit measures the cost of the filter.
func BenchmarkAudit(b *testing.B) {
	for _, level := range []audit.Level{audit.None, audit.Metadata} {
		b.Run(level.String(), func(b *testing.B) {
			t := &testing.T{}
			fixture := newAuditFixture(t, level, func(c *server.Config) {
				c.Audit = audit.New(audit.Config{
					Policy:     levelPolicy(level),
					Sinks:      []audit.Sink{discardSink{}},
					Metrics:    audit.NewMetrics(prometheus.NewRegistry()),
					MaxObject:  1,
					MaxObjects: 1,
				})
			}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
			b.ReportAllocs()
			for b.Loop() {
				fixture.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", listPath+"/p", nil))
			}
		})
	}
}

// discardSink encodes and discards events.
type discardSink struct{}

func (discardSink) Process(_ context.Context, e *audit.Event) error {
	e.AppendLine(make([]byte, 0, 2048))
	return nil
}

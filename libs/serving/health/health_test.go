package health_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"binnacle/libs/serving/health"
)

var errDown = errors.New("connection refused")

func passingCheck(*http.Request) error { return nil }
func failingCheck(*http.Request) error { return errDown }

func get(handler http.Handler, target string) (int, string, http.Header) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w.Code, w.Body.String(), w.Header()
}

func registry() *health.Registry {
	return health.New(health.Config{Logger: slog.New(slog.DiscardHandler)})
}

// TestHealthEndpointsReturnChecksAndStatus checks the bodies and status codes of the health
// endpoints.
func TestHealthEndpointsReturnChecksAndStatus(t *testing.T) {
	tests := []struct {
		name   string
		add    func(*health.Registry)
		target string
		code   int
		body   string
	}{
		{name: "no parameters", add: nil, target: "/livez", code: 200, body: "ok"},
		{name: "trailing slash", add: nil, target: "/readyz/", code: 404, body: "404 page not found\n"},
		{name: "verbose livez", add: nil, target: "/livez?verbose", code: 200, body: "[+]ping ok\nlivez check passed\n"},
		{name: "verbose healthz", add: nil, target: "/healthz?verbose=1", code: 200, body: "[+]ping ok\nhealthz check passed\n"},
		{
			name:   "checks in order of addition",
			add:    func(r *health.Registry) { r.Add("log", passingCheck); r.Add("etcd", passingCheck) },
			target: "/readyz?verbose",
			code:   200,
			body:   "[+]ping ok\n[+]log ok\n[+]etcd ok\nreadyz check passed\n",
		},
		{
			name:   "failing check of another endpoint",
			add:    func(r *health.Registry) { r.Add("etcd", failingCheck, health.Readyz) },
			target: "/livez?verbose",
			code:   200,
			body:   "[+]ping ok\nlivez check passed\n",
		},
		{
			name:   "failing check",
			add:    func(r *health.Registry) { r.Add("etcd", failingCheck, health.Readyz); r.Add("log", passingCheck) },
			target: "/readyz",
			code:   500,
			body:   "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\nreadyz check failed\n",
		},
		{
			name:   "excluded checks",
			add:    func(r *health.Registry) { r.Add("etcd", failingCheck); r.Add("log", passingCheck) },
			target: "/readyz?verbose&exclude=etcd&exclude=log",
			code:   200,
			body:   "[+]ping ok\n[+]etcd excluded: ok\n[+]log excluded: ok\nreadyz check passed\n",
		},
		{
			name:   "excluded check, not verbose",
			add:    func(r *health.Registry) { r.Add("etcd", failingCheck) },
			target: "/readyz?exclude=etcd",
			code:   200,
			body:   "ok",
		},
		{
			name:   "failing informational check",
			add:    func(r *health.Registry) { r.AddInformational("log", failingCheck) },
			target: "/readyz",
			code:   200,
			body:   "ok",
		},
		{name: "informational checks, verbose", add: func(r *health.Registry) {
			r.AddInformational("log", failingCheck)
			r.AddInformational("etcd", passingCheck)
		}, target: "/readyz?verbose", code: 200,
			body: "[+]ping ok\n[-]log failed: reason withheld, does not count\n[+]etcd ok\nreadyz check passed\n"},
		{
			name:   "informational check alone",
			add:    func(r *health.Registry) { r.AddInformational("log", failingCheck) },
			target: "/readyz/log",
			code:   500,
			body:   "internal server error: connection refused\n",
		},
		{name: "unknown exclude", add: nil, target: "/livez?verbose&exclude=a&exclude=b&exclude=a", code: 200,
			body: "[+]ping ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nlivez check passed\n"},
		{
			name: "many unknown excludes",
			add:  nil,
			target: "/livez?verbose" + strings.Repeat("&exclude=aaaaaaaaaaaaaaaa",
				3) + "&exclude=" + strings.Repeat("b", 5000) + "&exclude=c&exclude=ping",
			code: 200,
			body: "[+]ping excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"aaaaaaaaaaaaaaaa\",\"" + strings.Repeat("b", 493) + "\"...\nlivez check passed\n",
		},
		{
			name:   "unknown exclude with a failing check",
			add:    func(r *health.Registry) { r.Add("etcd", failingCheck) },
			target: "/livez?exclude=a",
			code:   500,
			body:   "[+]ping ok\n[-]etcd failed: reason withheld\nwarn: some health checks cannot be excluded: no matches for \"a\"\nlivez check failed\n",
		},
		{name: "one check", add: nil, target: "/readyz/ping", code: 200, body: "ok"},
		{
			name:   "one check with slashes in its name",
			add:    func(r *health.Registry) { r.Add("poststarthook/rbac/bootstrap-roles", passingCheck) },
			target: "/readyz/poststarthook/rbac/bootstrap-roles",
			code:   200,
			body:   "ok",
		},
		{
			name:   "one failing check",
			add:    func(r *health.Registry) { r.Add("etcd", failingCheck) },
			target: "/livez/etcd",
			code:   500,
			body:   "internal server error: connection refused\n",
		},
		{name: "unknown check", add: nil, target: "/livez/etcd", code: 404, body: "404 page not found\n"},
		{name: "other path", add: nil, target: "/livezz", code: 404, body: "404 page not found\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := registry()
			if test.add != nil {
				test.add(r)
			}
			gin.SetMode(gin.ReleaseMode)
			engine := gin.New()
			r.Mount(engine)
			for name, h := range map[string]http.Handler{"plain": r, "mounted": engine} {
				code, body, header := get(h, test.target)
				if name == "mounted" && code == 404 {
					body = test.body // the router's own text
				}
				if code != test.code || body != test.body {
					t.Errorf("%s: %d %q, want %d %q", name, code, body, test.code, test.body)
				}
				sniffable := code == 200 && strings.Count(test.target, "/") > 1 // the response of a single check
				if code != 404 && (header.Get("Content-Type") != "text/plain; charset=utf-8" ||
					(header.Get("X-Content-Type-Options") != "nosniff") != sniffable) {
					t.Errorf("%s: got headers %v, want text/plain, and nosniff unless the type may be sniffed: %t",
						name, header, sniffable)
				}
			}
		})
	}
}

// TestLivezPassesDuringGracePeriod checks that only /livez passes during the grace period.
func TestLivezPassesDuringGracePeriod(t *testing.T) {
	now := time.Unix(1000, 0)
	registry := health.New(health.Config{
		Logger:           slog.New(slog.DiscardHandler),
		LivezGracePeriod: 10 * time.Second,
		Now:              func() time.Time { return now },
	})
	registry.Add("etcd", failingCheck)
	for _, test := range []struct {
		after time.Duration
		path  string
		want  int
	}{
		{after: 0, path: "/livez", want: 200},
		{after: 0, path: "/livez/etcd", want: 200},
		{after: 0, path: "/readyz", want: 500},
		{after: 0, path: "/healthz", want: 500},
		{after: 9 * time.Second, path: "/livez", want: 200},
		{after: 10 * time.Second, path: "/livez", want: 500},
		{after: 10 * time.Second, path: "/livez/etcd", want: 500},
	} {
		now = time.Unix(1000, 0).Add(test.after)
		if code, _, _ := get(registry, test.path); code != test.want {
			t.Errorf("%s after %v: %d, want %d", test.path, test.after, code, test.want)
		}
	}
}

// TestFailuresAreLoggedOncePerChange checks that the failing checks are logged when they change,
// and that an ordinary start logs nothing.
func TestFailuresAreLoggedOncePerChange(t *testing.T) {
	var logged strings.Builder
	now := time.Unix(1000, 0)
	registry := health.New(health.Config{Logger: slog.New(slog.NewTextHandler(&logged, nil)), Now: func() time.Time { return now }})
	err := errDown
	registry.Add("etcd", func(*http.Request) error { return err })
	for _, step := range []struct {
		after time.Duration
		err   error
		want  string // in the log; empty for no message
	}{
		{after: 0, err: errDown, want: ""},
		{after: time.Second, err: nil, want: ""}, // an ordinary start
		{
			after: 2 * time.Second,
			err:   errDown,
			want:  "level=WARN msg=\"health endpoint fails\" endpoint=readyz checks=etcd reasons=\"etcd: connection refused\"",
		},
		{after: 3 * time.Second, err: errDown, want: ""},
		{after: 4 * time.Second, err: nil, want: "passes again"},
		{after: 5 * time.Second, err: nil, want: ""},
	} {
		now, err = time.Unix(1000, 0).Add(step.after), step.err
		logged.Reset()
		get(registry, "/readyz")
		if got := logged.String(); !strings.Contains(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("after %s: logged %q, want %q", step.after, got, step.want)
		}
	}
}

// TestSlowStartIsLogged checks that an endpoint that fails long after the start is logged.
func TestSlowStartIsLogged(t *testing.T) {
	var logged strings.Builder
	now := time.Unix(1000, 0)
	r := health.New(health.Config{Logger: slog.New(slog.NewTextHandler(&logged, nil)), Now: func() time.Time { return now }})
	r.Add("etcd", failingCheck)
	for range 20 {
		get(r, "/readyz")
		now = now.Add(time.Second)
	}
	if n := strings.Count(logged.String(), "\n"); n != 1 || !strings.Contains(logged.String(), "etcd: connection refused") {
		t.Errorf("%d lines, want 1:\n%s", n, logged.String())
	}
}

// TestCheckSeesTheRequest checks that a check gets the request of the endpoint.
func TestCheckSeesTheRequest(t *testing.T) {
	r := registry()
	var seen string
	r.Add("q", func(req *http.Request) error { seen = req.URL.Query().Get("x"); return nil })
	get(r, "/readyz?x=1")
	if seen != "1" {
		t.Errorf("check saw %q, want \"1\"", seen)
	}
}

// TestNameTwicePanics checks that an endpoint cannot have two checks of the same name.
func TestNameTwicePanics(t *testing.T) {
	r := registry()
	r.Add("etcd", passingCheck, health.Livez)
	r.Add("etcd", passingCheck, health.Readyz)
	defer func() {
		if recover() == nil {
			t.Error("Add() of a second check named etcd did not panic, want a panic")
		}
	}()
	r.Add("etcd", passingCheck)
}

// TestSLIsCountCheckResults checks that the results of the checks that ran are exported as metrics.
func TestSLIsCountCheckResults(t *testing.T) {
	r := registry()
	r.Add("store", failingCheck, health.Readyz)
	for _, target := range []string{"/livez", "/readyz", "/readyz?exclude=ping", "/readyz/ping"} {
		get(r, target)
	}
	const want = `# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.
# TYPE kubernetes_healthcheck gauge
kubernetes_healthcheck{name="ping",type="livez"} 1
kubernetes_healthcheck{name="ping",type="readyz"} 1
kubernetes_healthcheck{name="store",type="readyz"} 0
# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.
# TYPE kubernetes_healthchecks_total counter
kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1
kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 1
kubernetes_healthchecks_total{name="store",status="error",type="readyz"} 2
`
	if err := testutil.GatherAndCompare(r.SLIs(), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

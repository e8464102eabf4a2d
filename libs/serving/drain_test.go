package serving_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
)

// TestHealthIsServedWhileDraining checks that health and metrics are served until the last request
// has ended.
func TestHealthIsServedWhileDraining(t *testing.T) {
	options := testOptions(t)
	options.ShutdownRetryAfter = true
	entered, release := make(chan struct{}), make(chan struct{})
	testServer := startServer(t, options, nil, func(*serving.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/x" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			entered <- struct{}{}
			<-release
			io.WriteString(w, "complete")
		})
	})
	responses := make(chan string, 2)
	for range 2 {
		go func() {
			resp, err := testServer.client.Get(testServer.url + "/x")
			if err != nil {
				responses <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			responses <- string(body)
			if err != nil {
				t.Error(err)
			}
		}()
		<-entered
	}
	testServer.stop()
	<-testServer.Timeline().NotAcceptingNewRequest.Signaled()
	for path, want := range map[string]int{"/livez": 200, "/readyz": 500, "/healthz": 204, "/metrics": 204, "/livezz": 429} {
		resp, err := newClient(t, options.CertFile, nil).Get(testServer.url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
		if after := resp.Header.Get("Retry-After"); (after == "5") != (want == 429) {
			t.Errorf("%s: got Retry-After %q, want 5 with status 429 only", path, after)
		}
	}
	for range 2 {
		release <- struct{}{}
		if got := <-responses; got != "complete" {
			t.Errorf("response = %q, want complete", got)
		}
	}
	testServer.waitForShutdown(t)
}

// recovering returns an engine that calls a function for each GET request.
func recovering(t testing.TB, handle http.HandlerFunc) http.Handler {
	engine, err := serving.NewEngine(discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	engine.GET("/*path", func(c *gin.Context) { handle(c.Writer, c.Request) })
	return engine
}

// TestRecoveryRespondsToErrors checks that panics with an error get a 500 response, and that
// http.ErrAbortHandler closes the connection.
func TestRecoveryRespondsToErrors(t *testing.T) {
	panicking := func(v any) *httptest.ResponseRecorder {
		out := httptest.NewRecorder()
		recovering(t, func(http.ResponseWriter, *http.Request) { panic(v) }).ServeHTTP(out, httptest.NewRequest("GET", "/", nil))
		return out
	}
	if out := panicking(errors.New("x")); out.Code != 500 || !strings.Contains(out.Body.String(), `"reason":"InternalError"`) {
		t.Errorf("panic with an error: got status %d: %s, want 500 with InternalError", out.Code, out.Body)
	}
	func() {
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("panic value = %v, want http.ErrAbortHandler", err)
			}
		}()
		panicking(http.ErrAbortHandler)
	}()
	out := httptest.NewRecorder()
	recovering(t, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }).ServeHTTP(out, httptest.NewRequest("GET", "/", nil))
	if !out.Flushed {
		t.Error("Flush() through WithRecovery: Flushed = false, want true")
	}
}

// limitedRegisterer accepts left metrics and then fails.
type limitedRegisterer struct {
	prometheus.Registerer
	remaining int
}

func (f *limitedRegisterer) Register(prometheus.Collector) error {
	f.remaining--
	if f.remaining < 0 {
		return errors.New("full")
	}
	return nil
}

// TestNewServerFailsIfMetricsCannotBeRegistered checks that NewServer returns the error of each
// registration.
func TestNewServerFailsIfMetricsCannotBeRegistered(t *testing.T) {
	const connections = "register the connection metrics: full"
	for accepted, want := range []string{"register the certificate metrics: full", "register the stall metrics: full",
		connections, connections, connections, ""} {
		options := testOptions(t)
		if err := options.Complete(); err != nil {
			t.Fatal(err)
		}
		server, err := serving.NewServer(serving.Config{
			Options: options,
			Logger:  discardLogger(),
			Health:  health.New(health.Config{Logger: discardLogger()}),
			Metrics: &limitedRegisterer{remaining: accepted},
		})
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%d: %v, want %q", accepted, err, want)
		}
		if err == nil {
			server.Close()
		}
	}
}

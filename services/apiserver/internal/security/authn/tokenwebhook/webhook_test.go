package tokenwebhook_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"binnacle/libs/authenticator"
	"binnacle/services/apiserver/internal/security/authn/tokenwebhook"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "the-token-itself"

// startService starts a token review service and returns a client for it.
func startService(t *testing.T, version string, handle http.HandlerFunc) (*tokenwebhook.Client, *prometheus.Registry) {
	t.Helper()
	s := httptest.NewTLSServer(handle)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	c, reg := newClient(t, version, s.URL+"/authenticate", ca)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c, reg
}

func writeKubeconfig(t *testing.T, url string, ca []byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":"ca.crt"}}],
"users":[{"name":"u","user":{"token":"our-own"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newClient(t *testing.T, version, url string, caFile []byte) (*tokenwebhook.Client, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	c, err := tokenwebhook.New(tokenwebhook.Config{
		Kubeconfig: writeKubeconfig(t, url, caFile),
		Version:    version,
		Audiences:  []string{"api"},
		Registerer: reg,
		TryTimeout: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, reg
}

func reviewJSON(version, status string) string {
	return `{"apiVersion":"authentication.k8s.io/` + version + `","kind":"TokenReview","status":` + status + `}`
}

// TestReviewResultFollowsResponse checks the requests to the webhook, and the results for its
// responses.
func TestReviewResultFollowsResponse(t *testing.T) {
	alice := `{"authenticated":true,"user":{"username":"alice","uid":"u","groups":["dev"],"extra":{"k":["v"]}}}`
	for name, test := range map[string]struct {
		version, answer string
		code            int
		audiences       []string
		user            string // wanted; "" means that the token is rejected
		wantAudiences   []string
		err             string // part of the wanted error
		unavailable     bool   // the error is authenticator.ErrUnavailable
	}{
		"v1":                {version: "v1", answer: reviewJSON("v1", alice), user: "alice"},
		"v1beta1":           {version: "v1beta1", answer: reviewJSON("v1beta1", alice), user: "alice"},
		"created":           {version: "v1", code: 201, answer: reviewJSON("v1", alice), user: "alice"},
		"not authenticated": {version: "v1", answer: reviewJSON("v1", `{"authenticated":false}`)},
		"field name in another case": {
			version: "v1",
			answer:  reviewJSON("v1", `{"authenticated":false,"Authenticated":true,"user":{"username":"alice"}}`),
		},
		"with an error": {
			version: "v1",
			answer:  reviewJSON("v1", `{"authenticated":false,"error":"no such user"}`),
			err:     "no such user",
		},
		"success with an error": {
			version: "v1",
			answer:  reviewJSON("v1", `{"authenticated":true,"error":"ignored","user":{"username":"alice"}}`),
			user:    "alice",
		},
		"no user name": {version: "v1", answer: reviewJSON("v1", `{"authenticated":true}`), err: "without a name"},
		"own audience": {
			version:       "v1",
			audiences:     []string{"x", "api"},
			answer:        reviewJSON("v1", alice),
			user:          "alice",
			wantAudiences: []string{"api"},
		},
		"no audience in the response": {
			version:   "v1",
			audiences: []string{"x"},
			answer:    reviewJSON("v1", alice),
			err:       "other audiences",
		},
		"audiences in the response": {
			version:       "v1",
			audiences:     []string{"x", "y"},
			answer:        reviewJSON("v1", `{"authenticated":true,"audiences":["y","z"],"user":{"username":"alice"}}`),
			user:          "alice",
			wantAudiences: []string{"y"},
		},
		"another version": {version: "v1", answer: reviewJSON("v1beta1", alice), err: "expected TokenReview", unavailable: true},
		"another kind": {
			version:     "v1",
			answer:      `{"apiVersion":"authentication.k8s.io/v1","kind":"Status"}`,
			err:         "Status",
			unavailable: true,
		},
		"no JSON":   {version: "v1", answer: `hello`, err: "not a TokenReview", unavailable: true},
		"empty":     {version: "v1", answer: ``, err: "not a TokenReview", unavailable: true},
		"forbidden": {version: "v1", code: 403, answer: reviewJSON("v1", alice), err: "403", unavailable: true},
		"broken":    {version: "v1", code: 500, answer: secret, err: "500", unavailable: true},
		"too long": {
			version:     "v1",
			answer:      reviewJSON("v1", alice) + strings.Repeat(" ", 2<<20),
			err:         "too large",
			unavailable: true,
		},
		"many groups": {
			version: "v1",
			answer: reviewJSON("v1",
				`{"authenticated":true,"user":{"username":"alice","groups":["g"`+strings.Repeat(`,""`, 300_000)+`]}}`),
			err:         "too many values",
			unavailable: true,
		},
		"redirect": {version: "v1", code: 307, err: "307", unavailable: true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []byte
			service, _ := startService(t, test.version, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/authenticate" || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer our-own" {
					t.Errorf("got %s %s with headers %v, want POST /authenticate with the client's credentials", r.Method, r.URL, r.Header)
				}
				asked, _ = io.ReadAll(r.Body)
				w.Header().Set("Location", "/elsewhere")
				if test.code != 0 {
					w.WriteHeader(test.code)
				}
				_, _ = io.WriteString(w, test.answer)
			})
			r, ok, err := service.AuthenticateToken(t.Context(), secret, test.audiences)
			if ok != (test.user != "") || ok && (r.User.Name != test.user || !slices.Equal(r.Audiences, test.wantAudiences)) {
				t.Errorf("got %+v, %v, %v; want user %q, audiences %q", r, ok, err, test.user, test.wantAudiences)
			}
			if (err != nil) != (test.err != "") ||
				err != nil && !strings.Contains(err.Error(), test.err) ||
				errors.Is(err, authenticator.ErrUnavailable) != test.unavailable {
				t.Errorf("got error %v, want %q, unavailable %t", err, test.err, test.unavailable)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("got error %v, want one without the token", err)
			}
			var review struct {
				APIVersion, Kind string
				Spec             struct {
					Token     string
					Audiences []string
				}
			}
			err = json.Unmarshal(asked, &review)
			if err != nil || review.APIVersion != "authentication.k8s.io/"+test.version || review.Kind != "TokenReview" ||
				review.Spec.Token != secret || !slices.Equal(review.Spec.Audiences, test.audiences) {
				t.Errorf("got request %s, error %v; want token %q, audiences %q", asked, err, secret, test.audiences)
			}
		})
	}
}

// TestResponseSizeIsLimited checks that the client stops reading a response without end.
func TestResponseSizeIsLimited(t *testing.T) {
	const whole = 32 << 20 // much more than the buffers in between
	clientLeft := make(chan bool, 1)
	c, _ := startService(t, "v1", func(w http.ResponseWriter, _ *http.Request) {
		part := []byte(strings.Repeat(" ", 64<<10))
		for range whole / len(part) {
			if _, err := w.Write(part); err != nil {
				clientLeft <- true
				return
			}
		}
		clientLeft <- false
	})
	if _, ok, err := c.AuthenticateToken(t.Context(), secret, nil); ok || err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v, %v; want false, an error, text with \"too large\"", ok, err)
	}
	if !<-clientLeft {
		t.Errorf("a response of %d bytes was read, want the connection closed before its end", whole)
	}
}

// TestFailedReviewIsRetried checks that a review is tried again after a failure of the service, and
// that both tries are counted.
func TestFailedReviewIsRetried(t *testing.T) {
	var n atomic.Int32
	c, reg := startService(t, "v1", func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, reviewJSON("v1", `{"authenticated":true,"user":{"username":"alice"}}`))
	})
	if _, ok, err := c.AuthenticateToken(t.Context(), secret, nil); !ok {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "apiserver_delegated_authn_request_total" {
				codes[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if codes["200"] != 1 || codes["502"] != 1 || len(codes) != 2 {
		t.Errorf("got counted codes %v; want 1, 1, length 2", codes)
	}
}

// TestTemporaryErrorsAreRetried checks that errors that may be temporary are retried.
func TestTemporaryErrorsAreRetried(t *testing.T) {
	for name, test := range map[string]struct {
		first   func(http.ResponseWriter) // the first response
		retried bool
	}{
		"429": {first: func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) }, retried: true},
		"401": {first: func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, retried: true},
		"503": {first: func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, retried: true},
		"response is cut": {
			first: func(w http.ResponseWriter) {
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, "{")
			},
			retried: true,
		},
		"forbidden":            {first: func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, retried: false},
		"response is not JSON": {first: func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") }, retried: false},
	} {
		var n atomic.Int32
		cl, _ := startService(t, "v1", func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) == 1 {
				test.first(w)
				return
			}
			_, _ = io.WriteString(w, reviewJSON("v1", `{"authenticated":true,"user":{"username":"alice"}}`))
		})
		_, ok, err := cl.AuthenticateToken(t.Context(), secret, nil)
		if ok != test.retried || (n.Load() > 1) != test.retried {
			t.Errorf("%s: got %v, %v after %d requests; want %v, %v", name, ok, err, n.Load(), test.retried, test.retried)
		}
	}
}

// TestUnansweredReviewIsAnError checks that a review fails if the service never responds, and if it is
// not reachable.
func TestUnansweredReviewIsAnError(t *testing.T) {
	stop := make(chan struct{})
	var n atomic.Int32
	silent, _ := startService(t, "v1", func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	defer close(stop)
	if _, ok, err := silent.AuthenticateToken(t.Context(), secret, nil); ok || !errors.Is(err, authenticator.ErrUnavailable) {
		t.Errorf("silent: got %v, %v; want false, %v", ok, err, authenticator.ErrUnavailable)
	}
	if n.Load() != 2 {
		t.Errorf("got %d requests, want 2", n.Load())
	}
	closedServer := httptest.NewTLSServer(http.NotFoundHandler())
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: closedServer.Certificate().Raw})
	closedServer.Close()
	c, _ := newClient(t, "v1", closedServer.URL, ca)
	defer c.Close()
	if _, ok, err := c.AuthenticateToken(t.Context(), secret, nil); ok || !errors.Is(err, authenticator.ErrUnavailable) {
		t.Errorf("unreachable: got %v, %v; want false, %v", ok, err, authenticator.ErrUnavailable)
	}
}

// TestInvalidKubeconfigsAreRejected checks that unusable kubeconfigs are rejected, and that a
// server without TLS
// only causes a warning.
func TestInvalidKubeconfigsAreRejected(t *testing.T) {
	for name, c := range map[string]tokenwebhook.Config{
		"no version": {Kubeconfig: writeKubeconfig(t, "https://x", nil)},
		"no file":    {Kubeconfig: filepath.Join(t.TempDir(), "none"), Version: "v1"},
		"no URL":     {Kubeconfig: writeKubeconfig(t, "ftp://x", nil), Version: "v1"},
		"empty file": {Kubeconfig: os.DevNull, Version: "v1"},
		"no host":    {Kubeconfig: writeKubeconfig(t, "https:///path", nil), Version: "v1"},
		"no CA":      {Kubeconfig: writeKubeconfig(t, "https://x", []byte("none")), Version: "v1"},
	} {
		c.Registerer = prometheus.NewRegistry()
		if _, err := tokenwebhook.New(c); err == nil {
			t.Errorf("%s: got no error, want an error", name)
		}
	}
	// A server without TLS is allowed, with a warning in the log.
	for server, warns := range map[string]bool{"http://127.0.0.1:1": true, "https://127.0.0.1:1": false} {
		file := filepath.Join(t.TempDir(), "config")
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`,
			server)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		_, err := tokenwebhook.New(tokenwebhook.Config{
			Kubeconfig: file,
			Version:    "v1",
			Registerer: prometheus.NewRegistry(),
			Logger:     slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil || strings.Contains(log.String(), "not encrypted") != warns {
			t.Errorf("%s: got error %v, log %q; want no error, %v", server, err, log.String(), warns)
		}
	}
}

// TestDeadConnectionDelaysOnlyOneRequest checks that a dead connection delays only its own request.
// Each request has a
// connection of its own, which also distributes requests over replicas.
func TestDeadConnectionDelaysOnlyOneRequest(t *testing.T) {
	var dead atomic.Value
	dead.Store("")
	release := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dead.CompareAndSwap("the next", r.RemoteAddr)
		if dead.Load() == r.RemoteAddr {
			<-release
			return
		}
		fmt.Fprint(w, reviewJSON("v1", `{"authenticated":true,"user":{"username":"alice"}}`))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer close(release)
	c, _ := newClient(t, "v1", server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	defer c.Close()
	if _, ok, err := c.AuthenticateToken(t.Context(), secret, nil); !ok {
		t.Fatal(err)
	}
	dead.Store("the next")
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			_, ok, err := c.AuthenticateToken(t.Context(), secret, nil)
			if !ok && err == nil {
				err = errors.New("unknown")
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

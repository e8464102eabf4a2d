package review_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"

	"binnacle/libs/authenticator"
	"binnacle/services/authn-webhook/internal/review"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	v1      = "authentication.k8s.io/v1"
	v1beta1 = "authentication.k8s.io/v1beta1"
)

// fixedAuthenticator is an authenticator whose tokens name the result.
func fixedAuthenticator(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	user := authenticator.User{Name: "ada", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"example.org/x": {"y"}}}
	switch token {
	case "good":
		return &authenticator.Response{User: user, Audiences: authenticator.Intersect(audiences, []string{"a", "b"})}, true, nil
	case "plain":
		return &authenticator.Response{User: authenticator.User{Name: "bob"}}, true, nil
	case "bad":
		return nil, false, errors.New("it has expired")
	case "later":
		return nil, false, authenticator.Unavailable(errors.New("no keys yet"))
	case "slow":
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	return nil, false, nil
}

type fixture struct {
	logs     bytes.Buffer
	registry *prometheus.Registry
	handler  http.Handler
}

func newFixture() *fixture {
	f := &fixture{registry: prometheus.NewRegistry()}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	h := review.New(review.Config{
		Token:   authenticator.TokenFunc(fixedAuthenticator),
		Logger:  slog.New(slog.NewTextHandler(&f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics: review.NewMetrics(f.registry), Timeout: 20 * time.Millisecond,
	})
	engine.POST("/", h.Serve)
	engine.GET("/", review.NotAllowed)
	f.handler = engine
	return f
}

func (f *fixture) post(body, media string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", media)
	out := httptest.NewRecorder()
	f.handler.ServeHTTP(out, r)
	return out
}

func body(version, token string, audiences ...string) string {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": "TokenReview", "spec": map[string]any{"token": token, "audiences": audiences},
	})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// TestReviews checks the responses, the log and the metrics for token reviews.
func TestReviews(t *testing.T) {
	tests := []struct {
		name      string
		token     string
		audiences []string
		user      string
		got       []string // audiences
		err       string
		result    string
	}{
		{name: "good", token: "good", audiences: nil, user: "ada", got: nil, err: "", result: "authenticated"},
		{
			name:      "for an audience",
			token:     "good",
			audiences: []string{"x", "b"},
			user:      "ada",
			got:       []string{"b"},
			err:       "",
			result:    "authenticated",
		},
		{
			name:      "for other audiences",
			token:     "good",
			audiences: []string{"x"},
			user:      "",
			got:       nil,
			err:       "the token is for other audiences",
			result:    "refused",
		},
		{
			name:      "authenticator without audiences",
			token:     "plain",
			audiences: []string{"a"},
			user:      "",
			got:       nil,
			err:       "the token is for other audiences",
			result:    "refused",
		},
		{name: "without groups", token: "plain", audiences: nil, user: "bob", got: nil, err: "", result: "authenticated"},
		{name: "bad", token: "bad", audiences: nil, user: "", got: nil, err: "it has expired", result: "refused"},
		{name: "unknown", token: "stranger", audiences: nil, user: "", got: nil, err: "", result: "unknown"},
		{
			name:      "too long",
			token:     strings.Repeat("a", authenticator.MaxTokenBytes+1),
			audiences: nil,
			user:      "",
			got:       nil,
			err:       "token is too long",
			result:    "refused",
		},
	}
	for _, version := range []string{v1, v1beta1} {
		for _, test := range tests {
			t.Run(version+" "+test.name, func(t *testing.T) {
				fixture := newFixture()
				out := fixture.post(body(version, test.token, test.audiences...), "application/json; charset=utf-8")
				if out.Code != http.StatusOK {
					t.Fatalf("got %d %s, want %v", out.Code, out.Body, http.StatusOK)
				}
				var r authenticationv1.TokenReview
				if err := json.Unmarshal(out.Body.Bytes(), &r); err != nil {
					t.Fatal(err)
				}
				status := r.Status
				if r.APIVersion != version || r.Kind != "TokenReview" || r.Spec.Token != "" {
					t.Errorf("got %s %s, spec %v; want %v, \"TokenReview\", \"\"", r.APIVersion, r.Kind, r.Spec, version)
				}
				if status.Authenticated != (test.user != "") || status.User.Username != test.user || status.Error != test.err ||
					!slices.Equal(status.Audiences, test.got) {
					t.Errorf("got status %+v, want user %q, error %q, audiences %q", status, test.user, test.err, test.got)
				}
				if test.user == "ada" && (status.User.UID != "7" || status.User.Groups[0] != "dev" ||
					status.User.Extra["example.org/x"][0] != "y") {
					t.Errorf("got user %+v, want UID 7, group dev, extra example.org/x y", status.User)
				}
				fixture.wantOne(t, test.result)
				fixture.wantSecret(t, test.token)
			})
		}
	}
}

// TestNoDecision checks that an undecided review gets 503 with Retry-After.
func TestNoDecision(t *testing.T) {
	for _, token := range []string{"later", "slow"} {
		fixture := newFixture()
		out := fixture.post(body(v1, token), "application/json")
		if out.Code != http.StatusServiceUnavailable || out.Header().Get("Retry-After") == "" ||
			!strings.Contains(out.Body.String(), `"reason":"ServiceUnavailable"`) {
			t.Errorf("%s: got %d %s; want %v, other than \"\", text with `\"reason\":\"ServiceUnavailable\"`", token,
				out.Code, out.Body, http.StatusServiceUnavailable)
		}
		fixture.wantOne(t, "unavailable")
	}
}

// TestReviewTimeout checks that a review ends after a default time, or the time of the request. A
// decision counts even if it took all of the time.
func TestReviewTimeout(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, test := range map[string]struct {
		timeout time.Duration
		waits   bool
		want    string
	}{
		"nothing said":       {timeout: 0, waits: false, want: "running"},
		"in the last moment": {timeout: time.Millisecond, waits: true, want: "over"},
	} {
		engine := gin.New()
		engine.POST("/", review.New(review.Config{
			Token: authenticator.TokenFunc(func(ctx context.Context, _ string,
				_ []string) (*authenticator.Response, bool, error) {
				if test.waits {
					<-ctx.Done()
				}
				user := "running"
				if ctx.Err() != nil {
					user = "over"
				}
				return &authenticator.Response{User: authenticator.User{Name: user}}, true, nil
			}),
			Logger: slog.New(slog.DiscardHandler), Metrics: review.NewMetrics(prometheus.NewRegistry()), Timeout: test.timeout,
		}).Serve)
		f := &fixture{handler: engine}
		if out := f.post(body(v1, "x"), "application/json"); out.Code != http.StatusOK ||
			!strings.Contains(out.Body.String(), `"username":"`+test.want+`"`) {
			t.Errorf("%s: got status %d: %s, want %d with user %s", name, out.Code, out.Body, http.StatusOK, test.want)
		}
	}
}

// TestInvalidReviews checks the responses to invalid bodies, and to other methods than POST.
func TestInvalidReviews(t *testing.T) {
	tests := []struct {
		name, body, media string
		code              int
		want              string
	}{
		{name: "empty", body: "", media: "application/json", code: 400, want: "not a JSON object"},
		{name: "truncated", body: `{"apiVersion":"` + v1, media: "application/json", code: 400, want: "not a JSON object"},
		{name: "list", body: "[]", media: "application/json", code: 400, want: "not a JSON object"},
		{
			name:  "token is a number",
			body:  `{"apiVersion":"` + v1 + `","kind":"TokenReview","spec":{"token":1}}`,
			media: "application/json",
			code:  400,
			want:  "not a JSON object",
		},
		{
			name:  "other kind",
			body:  strings.Replace(body(v1, "good"), "TokenReview", "Pod", 1),
			media: "application/json",
			code:  400,
			want:  "not of kind TokenReview",
		},
		{
			name:  "other version",
			body:  body("authentication.k8s.io/v2", "good"),
			media: "application/json",
			code:  400,
			want:  "apiVersion must be",
		},
		{name: "no token", body: body(v1, ""), media: "application/json", code: 400, want: "spec.token is required"},
		{
			name:  "many audiences",
			body:  body(v1, "good", make([]string, 1000)...),
			media: "application/json",
			code:  400,
			want:  "spec.audiences has more",
		},
		{
			name:  "form",
			body:  body(v1, "good"),
			media: "application/x-www-form-urlencoded",
			code:  415,
			want:  "must be of type application/json",
		},
		{name: "no type", body: body(v1, "good"), media: "", code: 415, want: "must be of type application/json"},
		{
			name:  "half a type",
			body:  body(v1, "good"),
			media: "application/json; charset",
			code:  415,
			want:  "must be of type application/json",
		},
		{
			name:  "without end",
			body:  body(v1, strings.Repeat("a", 1<<20)),
			media: "application/json",
			code:  413,
			want:  "larger than",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture()
			out := f.post(tt.body, tt.media)
			if out.Code != tt.code || !strings.Contains(out.Body.String(), tt.want) ||
				!strings.Contains(out.Body.String(), `"kind":"Status"`) {
				t.Errorf("got status %d: %s, want a Status with %d and %q", out.Code, out.Body, tt.code, tt.want)
			}
			f.wantOne(t, "invalid")
		})
	}
	out := httptest.NewRecorder()
	newFixture().handler.ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/", nil))
	if out.Code != http.StatusMethodNotAllowed || out.Header().Get("Allow") != "POST" {
		t.Errorf("GET: got %d; want %v, \"POST\"", out.Code, http.StatusMethodNotAllowed)
	}
}

// wantOne checks that one review was counted, with the given result.
func (f *fixture) wantOne(t *testing.T, result string) {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		want := uint64(0)
		if m.GetLabel()[0].GetValue() == result {
			want = 1
		}
		if n := m.GetHistogram().GetSampleCount(); n != want {
			t.Errorf("got %d reviews with result %q, want %d", n, m.GetLabel()[0].GetValue(), want)
		}
	}
}

func (f *fixture) wantSecret(t *testing.T, token string) {
	t.Helper()
	if strings.Contains(f.logs.String(), token) && token != "bad" {
		t.Errorf("got log %s, want no token in it", f.logs.String())
	}
}

// FuzzReview checks that each response has an expected status and a JSON body.
func FuzzReview(f *testing.F) {
	f.Add(body(v1, "good", "a"))
	f.Add(body(v1beta1, "bad"))
	f.Add(`{"apiVersion":"` + v1 + `","kind":"TokenReview","spec":{"token":{}}}`)
	w := newFixture()
	f.Fuzz(func(t *testing.T, text string) {
		out := w.post(text, "application/json")
		if out.Code != http.StatusOK && out.Code != http.StatusBadRequest && out.Code != http.StatusServiceUnavailable {
			t.Errorf("got status %d: %s, want 200, 400 or 503", out.Code, out.Body)
		}
		if !json.Valid(out.Body.Bytes()) {
			t.Errorf("got body %s, want valid JSON", out.Body)
		}
	})
}

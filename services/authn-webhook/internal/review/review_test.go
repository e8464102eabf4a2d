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
	reviews := review.New(review.Config{
		Token:   authenticator.TokenFunc(fixedAuthenticator),
		Logger:  slog.New(slog.NewTextHandler(&f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics: review.NewMetrics(f.registry), Timeout: 20 * time.Millisecond,
	})
	engine.POST("/", reviews.Serve)
	engine.GET("/", review.NotAllowed)
	f.handler = engine
	return f
}

func (f *fixture) post(body, media string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("Content-Type", media)
	response := httptest.NewRecorder()
	f.handler.ServeHTTP(response, req)
	return response
}

// body returns a TokenReview as JSON.
func body(version, token string, audiences ...string) string {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": "TokenReview", "spec": map[string]any{"token": token, "audiences": audiences},
	})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// TestReviewReportsUserOrError checks the responses, the log and the metrics for token reviews.
func TestReviewReportsUserOrError(t *testing.T) {
	tests := []struct {
		name          string
		token         string
		audiences     []string // of the review
		wantUser      string   // empty if the token is not authenticated
		wantAudiences []string
		wantErr       string
		wantResult    string // label of the metric
	}{
		{name: "good", token: "good", audiences: nil, wantUser: "ada", wantAudiences: nil, wantErr: "", wantResult: "authenticated"},
		{
			name:          "for an audience",
			token:         "good",
			audiences:     []string{"x", "b"},
			wantUser:      "ada",
			wantAudiences: []string{"b"},
			wantErr:       "",
			wantResult:    "authenticated",
		},
		{
			name:          "for other audiences",
			token:         "good",
			audiences:     []string{"x"},
			wantUser:      "",
			wantAudiences: nil,
			wantErr:       "the token is for other audiences",
			wantResult:    "refused",
		},
		{
			name:          "authenticator without audiences",
			token:         "plain",
			audiences:     []string{"a"},
			wantUser:      "",
			wantAudiences: nil,
			wantErr:       "the token is for other audiences",
			wantResult:    "refused",
		},
		{name: "without groups", token: "plain", audiences: nil, wantUser: "bob", wantAudiences: nil, wantErr: "", wantResult: "authenticated"},
		{name: "bad", token: "bad", audiences: nil, wantUser: "", wantAudiences: nil, wantErr: "it has expired", wantResult: "refused"},
		{name: "unknown", token: "unknown", audiences: nil, wantUser: "", wantAudiences: nil, wantErr: "", wantResult: "unknown"},
		{
			name:          "too long",
			token:         strings.Repeat("a", authenticator.MaxTokenBytes+1),
			audiences:     nil,
			wantUser:      "",
			wantAudiences: nil,
			wantErr:       "token is too long",
			wantResult:    "refused",
		},
	}
	for _, version := range []string{v1, v1beta1} {
		for _, test := range tests {
			t.Run(version+" "+test.name, func(t *testing.T) {
				fixture := newFixture()
				response := fixture.post(body(version, test.token, test.audiences...), "application/json; charset=utf-8")
				if response.Code != http.StatusOK {
					t.Fatalf("got %d %s, want %v", response.Code, response.Body, http.StatusOK)
				}
				var tokenReview authenticationv1.TokenReview
				if err := json.Unmarshal(response.Body.Bytes(), &tokenReview); err != nil {
					t.Fatal(err)
				}
				status := tokenReview.Status
				if tokenReview.APIVersion != version || tokenReview.Kind != "TokenReview" || tokenReview.Spec.Token != "" {
					t.Errorf("got %s %s, spec %v; want %v, \"TokenReview\", \"\"", tokenReview.APIVersion, tokenReview.Kind, tokenReview.Spec, version)
				}
				if status.Authenticated != (test.wantUser != "") || status.User.Username != test.wantUser || status.Error != test.wantErr ||
					!slices.Equal(status.Audiences, test.wantAudiences) {
					t.Errorf("got status %+v, want user %q, error %q, audiences %q", status, test.wantUser, test.wantErr, test.wantAudiences)
				}
				if test.wantUser == "ada" && (status.User.UID != "7" || status.User.Groups[0] != "dev" ||
					status.User.Extra["example.org/x"][0] != "y") {
					t.Errorf("got user %+v, want UID 7, group dev, extra example.org/x y", status.User)
				}
				fixture.checkResultCount(t, test.wantResult)
				fixture.checkTokenNotLogged(t, test.token)
			})
		}
	}
}

// TestUndecidedReviewGets503 checks that an undecided review gets 503 with Retry-After.
func TestUndecidedReviewGets503(t *testing.T) {
	for _, token := range []string{"later", "slow"} {
		fixture := newFixture()
		response := fixture.post(body(v1, token), "application/json")
		if response.Code != http.StatusServiceUnavailable || response.Header().Get("Retry-After") == "" ||
			!strings.Contains(response.Body.String(), `"reason":"ServiceUnavailable"`) {
			t.Errorf("%s: got %d %s; want %d with Retry-After and the reason ServiceUnavailable", token,
				response.Code, response.Body, http.StatusServiceUnavailable)
		}
		fixture.checkResultCount(t, "unavailable")
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
		"default timeout":          {timeout: 0, waits: false, want: "running"},
		"decision at the deadline": {timeout: time.Millisecond, waits: true, want: "over"},
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
		if response := f.post(body(v1, "x"), "application/json"); response.Code != http.StatusOK ||
			!strings.Contains(response.Body.String(), `"username":"`+test.want+`"`) {
			t.Errorf("%s: got status %d: %s, want %d with user %s", name, response.Code, response.Body, http.StatusOK, test.want)
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
			name:  "malformed media type",
			body:  body(v1, "good"),
			media: "application/json; charset",
			code:  415,
			want:  "must be of type application/json",
		},
		{
			name:  "body above the limit",
			body:  body(v1, strings.Repeat("a", 1<<20)),
			media: "application/json",
			code:  413,
			want:  "larger than",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fixture := newFixture()
			response := fixture.post(test.body, test.media)
			if response.Code != test.code || !strings.Contains(response.Body.String(), test.want) ||
				!strings.Contains(response.Body.String(), `"kind":"Status"`) {
				t.Errorf("got status %d: %s, want a Status with %d and %q", response.Code, response.Body, test.code, test.want)
			}
			fixture.checkResultCount(t, "invalid")
		})
	}
	response := httptest.NewRecorder()
	newFixture().handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/", nil))
	if response.Code != http.StatusMethodNotAllowed || response.Header().Get("Allow") != "POST" {
		t.Errorf("GET: got %d; want %v, \"POST\"", response.Code, http.StatusMethodNotAllowed)
	}
}

// checkResultCount checks that one review was counted, with the given result.
func (f *fixture) checkResultCount(t *testing.T, result string) {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range families[0].GetMetric() {
		want := uint64(0)
		if metric.GetLabel()[0].GetValue() == result {
			want = 1
		}
		if count := metric.GetHistogram().GetSampleCount(); count != want {
			t.Errorf("got %d reviews with result %q, want %d", count, metric.GetLabel()[0].GetValue(), want)
		}
	}
}

// checkTokenNotLogged checks that the log does not contain the token. "bad" also occurs in other texts.
func (f *fixture) checkTokenNotLogged(t *testing.T, token string) {
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
	fuzzed := newFixture()
	f.Fuzz(func(t *testing.T, text string) {
		response := fuzzed.post(text, "application/json")
		if response.Code != http.StatusOK && response.Code != http.StatusBadRequest && response.Code != http.StatusServiceUnavailable {
			t.Errorf("got status %d: %s, want 200, 400 or 503", response.Code, response.Body)
		}
		if !json.Valid(response.Body.Bytes()) {
			t.Errorf("got body %s, want valid JSON", response.Body)
		}
	})
}

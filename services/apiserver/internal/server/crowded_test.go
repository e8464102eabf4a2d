package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server"
)

// crowded knows nobody, as too many wait to be known.
type crowded struct{}

func (crowded) Authenticate(*http.Request) (*request.User, error) {
	return nil, errors.Join(errors.New("no certificate"), fmt.Errorf("review of a token: %w", webhookclient.ErrCrowded))
}

// busy has no time to decide on a verb.
type busy string

func (b busy) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.Verb == string(b) {
		return authz.NoOpinion, "", fmt.Errorf("authorization webhook: %w", webhookclient.ErrCrowded)
	}
	return authz.Allow, "", nil
}

// TestCrowdedOut: whom nobody was asked about is neither unknown nor refused for good.
func TestCrowdedOut(t *testing.T) {
	for name, c := range map[string]struct {
		authenticator interface {
			Authenticate(*http.Request) (*request.User, error)
		}
		authorizer authz.Authorizer
		code       int
	}{
		"unknown":      {crowded{}, &rules{}, 429},
		"undecided":    {always{&request.User{Name: "boss"}}, busy("get"), 429},
		"impersonated": {always{&request.User{Name: "boss"}}, busy("impersonate"), 429},
		"known":        {always{&request.User{Name: "boss"}}, busy("list"), 200},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := server.Handler(server.Config{
				Mux: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Authenticator: c.authenticator, Authorizer: c.authorizer,
				Metrics: server.NewMetrics(prometheus.NewRegistry()), Kinds: apiset.NewLive(nil),
				Logger: slog.New(slog.DiscardHandler), RequestTimeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("GET", "/version", nil)
			if name == "impersonated" {
				r.Header.Set("Impersonate-User", "alice")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if again := w.Header().Get("Retry-After"); w.Code != c.code || (again != "") != (c.code == 429) {
				t.Errorf("%d, Retry-After %q: %s", w.Code, again, w.Body)
			}
		})
	}
}

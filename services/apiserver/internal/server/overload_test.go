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

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// overloadedAuthenticator fails because its webhook has too many waiting requests.
type overloadedAuthenticator struct{}

func (overloadedAuthenticator) Authenticate(*http.Request) (*request.User, error) {
	return nil, errors.Join(errors.New("no certificate"), fmt.Errorf("review of a token: %w", limit.ErrFull))
}

// overloadedAuthorizer fails for one verb because its webhook has too many waiting requests.
type overloadedAuthorizer string

func (o overloadedAuthorizer) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.Verb == string(o) {
		return authz.NoOpinion, "", fmt.Errorf("authorization webhook: %w", limit.ErrFull)
	}
	return authz.Allow, "", nil
}

// TestWebhookOverloadReturns429 checks that an overloaded webhook yields 429 instead of 401, 403 or
// 500.
func TestWebhookOverloadReturns429(t *testing.T) {
	for name, test := range map[string]struct {
		authenticator interface {
			Authenticate(*http.Request) (*request.User, error)
		}
		authorizer authz.Authorizer
		code       int
	}{
		"authentication": {authenticator: overloadedAuthenticator{}, authorizer: &impersonationRules{}, code: 429},
		"authorization":  {authenticator: fixedUser{&request.User{Name: "boss"}}, authorizer: overloadedAuthorizer("get"), code: 429},
		"impersonated": {
			authenticator: fixedUser{&request.User{Name: "boss"}},
			authorizer:    overloadedAuthorizer("impersonate"),
			code:          429,
		},
		"other verb": {authenticator: fixedUser{&request.User{Name: "boss"}}, authorizer: overloadedAuthorizer("list"), code: 200},
	} {
		t.Run(name, func(t *testing.T) {
			handler, err := server.Handler(server.Config{
				Mux:            http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
				Authenticator:  test.authenticator,
				Authorizer:     test.authorizer,
				Metrics:        telemetry.NewMetrics(prometheus.NewRegistry()),
				Kinds:          apiset.NewLive(nil),
				Logger:         slog.New(slog.DiscardHandler),
				RequestTimeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("GET", "/version", nil)
			if name == "impersonated" {
				r.Header.Set("Impersonate-User", "alice")
			}
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, r)
			if again := response.Header().Get("Retry-After"); response.Code != test.code || (again != "") != (test.code == 429) {
				t.Errorf("got %d with Retry-After %q, want %d: %s", response.Code, again, test.code, response.Body)
			}
		})
	}
}

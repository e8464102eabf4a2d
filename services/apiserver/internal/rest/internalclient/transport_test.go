package internalclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// contextKey is the key of a context value of the calling request.
type contextKey struct{}

// sendThroughTransport sends a request with a body to a handler through a Transport.
func sendThroughTransport(t *testing.T, ctx context.Context, h http.HandlerFunc, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://kubernetes.default.svc:443/a/b?c=d", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return (internalclient.Transport{Handler: func() http.Handler { return h }}).RoundTrip(r)
}

// TestTransportServesRequestAsTheServer checks that the handler gets the request as one of the
// server's own user, without the state of the calling request, and that the caller gets the whole
// response.
func TestTransportServesRequestAsTheServer(t *testing.T) {
	ctx := context.WithValue(t.Context(), contextKey{}, "state")
	resp, err := sendThroughTransport(t, ctx, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "question" {
			t.Errorf("handler got body %q, error %v, want question, no error", body, err)
		}
		if r.RequestURI != "/a/b?c=d" || r.URL.Host != "" {
			t.Errorf("handler got URI %s, host %q, want /a/b?c=d, no host", r.RequestURI, r.URL.Host)
		}
		if value := r.Context().Value(contextKey{}); value != nil {
			t.Errorf("handler got context value %v of the calling request, want none", value)
		}
		u, err := internalclient.Authenticator{}.Authenticate(r)
		if err != nil || u == nil || u.Name != "system:apiserver" {
			t.Errorf("got user %v, %v, want system:apiserver", u, err)
		}
		w.Header().Set("X-Test", "1")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "answer")
	}, "question")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "answer" || resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Test") != "1" {
		t.Errorf("got status %d, body %q, headers %v, %v, want 418, answer, X-Test 1", resp.StatusCode, body, resp.Header, err)
	}
}

// TestAuthenticatorIgnoresOtherRequests checks that requests of clients are not authenticated as
// the server.
func TestAuthenticatorIgnoresOtherRequests(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := (internalclient.Authenticator{}).Authenticate(r); u != nil || err != nil {
		t.Errorf("request of a client: got user %v, %v, want none", u, err)
	}
}

// TestTransportFailuresAreErrors checks that panics, long responses and cancellations are errors.
func TestTransportFailuresAreErrors(t *testing.T) {
	for name, client := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"panic": {handler: func(http.ResponseWriter, *http.Request) { panic("x") }, want: "panic: x"},
		"long response": {
			handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<20+1)) },
			want:    "too long",
		},
	} {
		if _, err := sendThroughTransport(t, t.Context(), client.handler, ""); err == nil || !strings.Contains(err.Error(), client.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, client.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := sendThroughTransport(t, ctx, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}, "")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled request: got error %v, want context.Canceled", err)
	}
}

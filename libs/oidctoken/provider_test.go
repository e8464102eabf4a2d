package oidctoken_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"binnacle/libs/authenticator"
	"binnacle/libs/oidctoken"
	"binnacle/libs/oidctoken/oidctest"
)

// TestDiscoveryIsRetried checks that tokens are rejected until discovery succeeds, that a failed
// discovery is logged, and that a token causes another discovery.
func TestDiscoveryIsRetried(t *testing.T) {
	issuer := oidctest.New(t)
	issuer.SetStatus(http.StatusBadGateway)
	logged := make(chan string, 1)
	provider, err := oidctoken.NewProvider(oidctoken.ProviderConfig{IssuerURL: issuer.URL(), CA: issuer.CA()},
		slog.New(&firstError{logged: logged}))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := oidctoken.New(provider, []string{oidctest.ClientID}, bySubject)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := tokens.AuthenticateToken(t.Context(), issuer.Token(nil), nil); ok || !errors.Is(err,
		oidctoken.ErrNotInitialized) || !errors.Is(err, authenticator.ErrUnavailable) {
		t.Errorf("before the first discovery: %v, %v, want false, error %v, error %v", ok, err,
			oidctoken.ErrNotInitialized, authenticator.ErrUnavailable)
	}
	if err := provider.Check(); !errors.Is(err, oidctoken.ErrNotInitialized) {
		t.Errorf("Check() = %v, want error %v", err, oidctoken.ErrNotInitialized)
	}
	runProvider(t, provider)
	if got := <-logged; !strings.Contains(got, "status 502") {
		t.Errorf("first discovery: got log %s, want it to contain %q", got, "status 502")
	}
	issuer.SetStatus(http.StatusOK)
	if _, ok, err := tokens.AuthenticateToken(t.Context(), issuer.Token(nil), nil); !ok || err != nil {
		t.Errorf("first token after the failure: got %v, %v, want true, no error", ok, err)
	}
	if err := provider.Check(); err != nil {
		t.Errorf("Check() after discovery = %v, want nil", err)
	}
	if _, ok, err := tokens.AuthenticateToken(t.Context(), issuer.Token(nil), nil); !ok || err != nil {
		t.Errorf("after discovery: %v, %v, want true, no error", ok, err)
	}
}

// firstFailure runs a provider until its first request has failed, and returns the error.
func firstFailure(t *testing.T, config oidctoken.ProviderConfig) string {
	t.Helper()
	logged := make(chan string, 1)
	p, err := oidctoken.NewProvider(config, slog.New(&firstError{logged: logged}))
	if err != nil {
		t.Fatal(err)
	}
	runProvider(t, p)
	return <-logged
}

// firstError is a log handler that returns the first warning or error.
type firstError struct{ logged chan string }

func (h *firstError) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h *firstError) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h *firstError) WithGroup(string) slog.Handler { return h }

func (h *firstError) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Value.String()
		return true
	})
	select {
	case h.logged <- text:
	default:
	}
	return nil
}

// TestInvalidMetadataOrKeysAreReported checks the errors for providers with invalid metadata or
// keys.
func TestInvalidMetadataOrKeysAreReported(t *testing.T) {
	tests := []struct {
		name   string
		breaks func(i *oidctest.Provider, config *oidctoken.ProviderConfig)
		want   string
	}{
		{
			name:   "another issuer",
			breaks: func(i *oidctest.Provider, _ *oidctoken.ProviderConfig) { i.SetIssuer("https://other") },
			want:   `is of issuer "https://other"`,
		},
		{name: "keys over http", breaks: func(i *oidctest.Provider, _ *oidctoken.ProviderConfig) {
			i.SetMetadata(map[string]string{"issuer": i.URL(), "jwks_uri": "http://localhost/keys"})
		}, want: "want https"},
		{name: "no jwks_uri", breaks: func(i *oidctest.Provider, _ *oidctoken.ProviderConfig) {
			i.SetMetadata(map[string]string{"issuer": i.URL()})
		}, want: "jwks_uri"},
		{
			name:   "metadata is a list",
			breaks: func(i *oidctest.Provider, _ *oidctoken.ProviderConfig) { i.SetMetadata([]string{}) },
			want:   "cannot unmarshal",
		},
		{name: "metadata over the limit", breaks: func(i *oidctest.Provider, _ *oidctoken.ProviderConfig) {
			i.SetMetadata(map[string]string{"issuer": strings.Repeat("a", 2<<20)})
		}, want: "more than"},
		{
			name:   "status",
			breaks: func(i *oidctest.Provider, _ *oidctoken.ProviderConfig) { i.SetStatus(http.StatusNotFound) },
			want:   "status 404",
		},
		{name: "unknown CA", breaks: func(_ *oidctest.Provider, config *oidctoken.ProviderConfig) { config.CA = "" }, want: "certificate"},
		{
			name: "discovery URL not found",
			breaks: func(_ *oidctest.Provider, config *oidctoken.ProviderConfig) {
				config.DiscoveryURL = config.IssuerURL + "/nowhere"
			},
			want: "/nowhere returned status 404",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			issuer := oidctest.New(t)
			config := oidctoken.ProviderConfig{IssuerURL: issuer.URL(), CA: issuer.CA()}
			tt.breaks(issuer, &config)
			if got := firstFailure(t, config); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestDiscoveryURLReplacesIssuerURL checks that DiscoveryURL is used instead of the issuer URL.
func TestDiscoveryURLReplacesIssuerURL(t *testing.T) {
	issuer := oidctest.New(t)
	// Only the metadata elsewhere can be reached, not the issuer itself.
	const url = "https://issuer.invalid"
	issuer.SetIssuer(url)
	provider := newProvider(t, oidctoken.ProviderConfig{IssuerURL: url, DiscoveryURL: issuer.DiscoveryURL(), CA: issuer.CA()})
	tokens, err := oidctoken.New(provider, []string{oidctest.ClientID}, bySubject)
	if err != nil {
		t.Fatal(err)
	}
	runProvider(t, provider)
	<-provider.Initialized()
	if _, ok, err := tokens.AuthenticateToken(t.Context(), issuer.Token(map[string]any{"iss": url}), nil); !ok || err != nil {
		t.Errorf("got %v, %v, want true, no error", ok, err)
	}
}

// TestNewProviderRejectsInvalidConfigurations checks the errors for invalid provider configurations.
func TestNewProviderRejectsInvalidConfigurations(t *testing.T) {
	tests := []struct {
		name   string
		config oidctoken.ProviderConfig
		want   string
	}{
		{name: "no issuer", config: oidctoken.ProviderConfig{}, want: "issuer URL"},
		{name: "http", config: oidctoken.ProviderConfig{IssuerURL: "http://x"}, want: "want https"},
		{name: "no host", config: oidctoken.ProviderConfig{IssuerURL: "https:///x"}, want: "names no host"},
		{name: "no URL", config: oidctoken.ProviderConfig{IssuerURL: "https://x\x00"}, want: "invalid control character"},
		{
			name:   "discovery over http",
			config: oidctoken.ProviderConfig{IssuerURL: "https://x", DiscoveryURL: "http://y"},
			want:   "discovery URL",
		},
		{
			name:   "algorithm",
			config: oidctoken.ProviderConfig{IssuerURL: "https://x", Algorithms: []string{"HS256"}},
			want:   `unsupported signing algorithm "HS256"`,
		},
		{name: "CA", config: oidctoken.ProviderConfig{IssuerURL: "https://x", CA: "none"}, want: "certificate authority"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := oidctoken.NewProvider(tt.config, slog.New(slog.DiscardHandler)); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := oidctoken.New(newProvider(t, oidctoken.ProviderConfig{IssuerURL: "https://x"}), nil, bySubject); err == nil {
		t.Error("New() without audiences = nil, want an error")
	}
}

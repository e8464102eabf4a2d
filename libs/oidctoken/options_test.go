package oidctoken_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/libs/oidctoken"
	"binnacle/libs/oidctoken/oidctest"
	"binnacle/libs/options"
)

// command is a process with the flags of this package.
type command struct{ *oidctoken.Options }

func (command) Complete() error { return nil }

// parse parses a command line and returns the errors.
func parse(t *testing.T, parsed *oidctoken.Options, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	options.Main(t.Context(), "testd", "", command{parsed}, func(context.Context, *slog.Logger) error { return nil }, args,
		&out, &errOut)
	return errOut.String()
}

// TestOptionsRejectInvalidCombinations checks the errors for invalid combinations of the --oidc-*
// flags.
func TestOptionsRejectInvalidCombinations(t *testing.T) {
	const wantTogether = "--oidc-issuer-url and --oidc-client-id must be specified together"
	required := []string{"--oidc-issuer-url=https://x", "--oidc-client-id=y"}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{name: "no flags", args: nil, want: ""},
		{name: "required flags", args: required, want: ""},
		{name: "issuer without client", args: required[:1], want: wantTogether},
		{name: "client without issuer", args: required[1:], want: wantTogether},
		{name: "groups claim without issuer", args: []string{"--oidc-groups-claim=groups"}, want: wantTogether},
		{name: "http", args: []string{"--oidc-issuer-url=http://x", "--oidc-client-id=y"}, want: "want https"},
		{name: "algorithm", args: append(required, "--oidc-signing-algs=RS256,HS256"), want: `unsupported signing algorithm "HS256"`},
		{
			name: "no algorithm",
			args: append(required, "--oidc-signing-algs="),
			want: "--oidc-signing-algs must name at least one algorithm",
		},
		{name: "claim without a value", args: append(required, "--oidc-required-claim=x"), want: "x must be formatted as key=value"},
		{name: "claim without a key", args: append(required, "--oidc-required-claim==x"), want: "the key is empty"},
		{name: "no username claim", args: append(required, "--oidc-username-claim="), want: "--oidc-username-claim must not be empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := parse(t, oidctoken.NewOptions(), tt.args...)
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestOptionsBuildWorkingAuthenticator authenticates tokens with the --oidc-* flags.
func TestOptionsBuildWorkingAuthenticator(t *testing.T) {
	issuer := oidctest.New(t)
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(caFile, []byte(issuer.CA()), 0o600); err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{"email": "a@b.c", "email_verified": true, "teams": []string{"x"}, "hd": "example.org"}
	tests := []struct {
		name string
		args []string
		want string // user and groups
	}{
		{name: "defaults", args: nil, want: issuer.URL() + "#ada"},
		{name: "no prefix", args: []string{"--oidc-username-prefix=-"}, want: "ada"},
		{name: "prefix", args: []string{"--oidc-username-prefix=p:"}, want: "p:ada"},
		{name: "email has no prefix", args: []string{"--oidc-username-claim=email"}, want: "a@b.c"},
		{
			name: "groups",
			args: []string{"--oidc-groups-claim=teams", "--oidc-groups-prefix=g:", "--oidc-username-prefix=-"},
			want: "ada g:x",
		},
		{name: "required claim present", args: []string{"--oidc-required-claim=hd=example.org", "--oidc-username-prefix=-"}, want: "ada"},
		{
			name: "required claim missing",
			args: []string{"--oidc-required-claim=hd=example.org", "--oidc-required-claim=x=y"},
			want: `required claim "x"`,
		},
		{name: "other algorithm", args: []string{"--oidc-signing-algs=ES256"}, want: "malformed jwt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			options := oidctoken.NewOptions()
			args := append([]string{"--oidc-issuer-url=" + issuer.URL(), "--oidc-client-id=" + oidctest.ClientID,
				"--oidc-ca-file=" + caFile}, tt.args...)
			if got := parse(t, options, args...); got != "" {
				t.Fatal(got)
			}
			authenticator, err := options.Authenticator(slog.New(slog.DiscardHandler), nil)
			if err != nil {
				t.Fatal(err)
			}
			runProvider(t, authenticator.Provider())
			<-authenticator.Provider().Initialized()
			got := ""
			response, ok, err := authenticator.AuthenticateToken(t.Context(), issuer.Token(claims), nil)
			if ok {
				got = strings.Join(append([]string{response.User.Name}, response.User.Groups...), " ")
			} else if err != nil {
				got = err.Error()
			}
			if got != tt.want && (ok || !strings.Contains(got, tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestWithoutFlagsThereIsNoAuthenticator checks that no authenticator is returned without flags,
// and the errors for an unusable CA file.
func TestWithoutFlagsThereIsNoAuthenticator(t *testing.T) {
	options := oidctoken.NewOptions()
	tokens, err := options.Authenticator(slog.New(slog.DiscardHandler), nil)
	if tokens != nil || err != nil || options.IsSet() {
		t.Errorf("without flags: got %v, %v, set: %t, want no authenticator, not set", tokens, err, options.IsSet())
	}
	options.IssuerURL, options.ClientID, options.CAFile = "https://x", "y", "/no/such"
	if _, err := options.Authenticator(slog.New(slog.DiscardHandler), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want error %v", err, os.ErrNotExist)
	}
	options.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(options.CAFile, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := options.Authenticator(slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(),
		"certificate authority") {
		t.Errorf("got %v, want an error about the certificate authority", err)
	}
	for _, half := range []oidctoken.Options{{IssuerURL: "https://x"}, {ClientID: "y"}} {
		if !half.IsSet() || len(half.Validate()) == 0 {
			t.Errorf("%+v: no validation error, or not set, want an error", half)
		}
	}
}

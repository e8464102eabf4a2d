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
func parse(t *testing.T, o *oidctoken.Options, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	options.Main(t.Context(), "testd", "", command{o}, func(context.Context, *slog.Logger) error { return nil }, args,
		&out, &errOut)
	return errOut.String()
}

// TestOptionErrors checks the errors for invalid combinations of the --oidc-* flags.
func TestOptionErrors(t *testing.T) {
	const together = "--oidc-issuer-url and --oidc-client-id must be specified together"
	ok := []string{"--oidc-issuer-url=https://x", "--oidc-client-id=y"}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{name: "none", args: nil, want: ""},
		{name: "least", args: ok, want: ""},
		{name: "issuer alone", args: ok[:1], want: together},
		{name: "client alone", args: ok[1:], want: together},
		{name: "another alone", args: []string{"--oidc-groups-claim=groups"}, want: together},
		{name: "http", args: []string{"--oidc-issuer-url=http://x", "--oidc-client-id=y"}, want: "want https"},
		{name: "algorithm", args: append(ok, "--oidc-signing-algs=RS256,HS256"), want: `unsupported signing algorithm "HS256"`},
		{
			name: "no algorithm",
			args: append(ok, "--oidc-signing-algs="),
			want: "--oidc-signing-algs must name at least one algorithm",
		},
		{name: "claim without a value", args: append(ok, "--oidc-required-claim=x"), want: "x must be formatted as key=value"},
		{name: "claim without a key", args: append(ok, "--oidc-required-claim==x"), want: "the key is empty"},
		{name: "no username claim", args: append(ok, "--oidc-username-claim="), want: "--oidc-username-claim must not be empty"},
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

// TestOptionsAuthenticator authenticates tokens with the --oidc-* flags.
func TestOptionsAuthenticator(t *testing.T) {
	issuer := oidctest.New(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte(issuer.CA()), 0o600); err != nil {
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
		{name: "required", args: []string{"--oidc-required-claim=hd=example.org", "--oidc-username-prefix=-"}, want: "ada"},
		{
			name: "required and missing",
			args: []string{"--oidc-required-claim=hd=example.org", "--oidc-required-claim=x=y"},
			want: `required claim "x"`,
		},
		{name: "other algorithm", args: []string{"--oidc-signing-algs=ES256"}, want: "malformed jwt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := oidctoken.NewOptions()
			args := append([]string{"--oidc-issuer-url=" + issuer.URL(), "--oidc-client-id=" + oidctest.ClientID,
				"--oidc-ca-file=" + ca}, tt.args...)
			if got := parse(t, o, args...); got != "" {
				t.Fatal(got)
			}
			authenticator, err := o.Authenticator(slog.New(slog.DiscardHandler), nil)
			if err != nil {
				t.Fatal(err)
			}
			runProvider(t, authenticator.Provider())
			<-authenticator.Provider().Initialized()
			got := ""
			r, ok, err := authenticator.AuthenticateToken(t.Context(), issuer.Token(claims), nil)
			if ok {
				got = strings.Join(append([]string{r.User.Name}, r.User.Groups...), " ")
			} else if err != nil {
				got = err.Error()
			}
			if got != tt.want && (ok || !strings.Contains(got, tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestNoFlagsNoAuthenticator checks that no authenticator is returned without flags, and the errors
// for an unusable CA file.
func TestNoFlagsNoAuthenticator(t *testing.T) {
	o := oidctoken.NewOptions()
	a, err := o.Authenticator(slog.New(slog.DiscardHandler), nil)
	if a != nil || err != nil || o.IsSet() {
		t.Errorf("without flags: got %v, %v, set: %t, want no authenticator, not set", a, err, o.IsSet())
	}
	o.IssuerURL, o.ClientID, o.CAFile = "https://x", "y", "/no/such"
	if _, err := o.Authenticator(slog.New(slog.DiscardHandler), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want error %v", err, os.ErrNotExist)
	}
	o.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(o.CAFile, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Authenticator(slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(),
		"certificate authority") {
		t.Errorf("got %v, want an error about the certificate authority", err)
	}
	for _, half := range []oidctoken.Options{{IssuerURL: "https://x"}, {ClientID: "y"}} {
		if !half.IsSet() || len(half.Validate()) == 0 {
			t.Errorf("%+v: no validation error, or not set, want an error", half)
		}
	}
}

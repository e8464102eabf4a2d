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
	options.Main(t.Context(), "testd", "", command{o}, func(context.Context, *slog.Logger) error { return nil }, args, &out, &errOut)
	return errOut.String()
}

func TestOptionErrors(t *testing.T) {
	const together = "--oidc-issuer-url and --oidc-client-id must be specified together"
	ok := []string{"--oidc-issuer-url=https://x", "--oidc-client-id=y"}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"none", nil, ""},
		{"least", ok, ""},
		{"issuer alone", ok[:1], together},
		{"client alone", ok[1:], together},
		{"another alone", []string{"--oidc-groups-claim=groups"}, together},
		{"http", []string{"--oidc-issuer-url=http://x", "--oidc-client-id=y"}, "want https"},
		{"algorithm", append(ok, "--oidc-signing-algs=RS256,HS256"), `unsupported signing algorithm "HS256"`},
		{"no algorithm", append(ok, "--oidc-signing-algs="), "--oidc-signing-algs must name at least one algorithm"},
		{"claim without a value", append(ok, "--oidc-required-claim=x"), "x must be formatted as key=value"},
		{"claim without a key", append(ok, "--oidc-required-claim==x"), "the key is empty"},
		{"no username claim", append(ok, "--oidc-username-claim="), "--oidc-username-claim must not be empty"},
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
		{"defaults", nil, issuer.URL() + "#ada"},
		{"no prefix", []string{"--oidc-username-prefix=-"}, "ada"},
		{"prefix", []string{"--oidc-username-prefix=p:"}, "p:ada"},
		{"email has no prefix", []string{"--oidc-username-claim=email"}, "a@b.c"},
		{"groups", []string{"--oidc-groups-claim=teams", "--oidc-groups-prefix=g:", "--oidc-username-prefix=-"}, "ada g:x"},
		{"required", []string{"--oidc-required-claim=hd=example.org", "--oidc-username-prefix=-"}, "ada"},
		{"required and missing", []string{"--oidc-required-claim=hd=example.org", "--oidc-required-claim=x=y"}, `required claim "x"`},
		{"other algorithm", []string{"--oidc-signing-algs=ES256"}, "malformed jwt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := oidctoken.NewOptions()
			args := append([]string{"--oidc-issuer-url=" + issuer.URL(), "--oidc-client-id=" + oidctest.ClientID, "--oidc-ca-file=" + ca}, tt.args...)
			if got := parse(t, o, args...); got != "" {
				t.Fatal(got)
			}
			a, err := o.Authenticator(slog.New(slog.DiscardHandler), nil)
			if err != nil {
				t.Fatal(err)
			}
			run(t, a.Provider())
			<-a.Provider().Initialized()
			got := ""
			r, ok, err := a.AuthenticateToken(t.Context(), issuer.Token(claims), nil)
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

func TestNoFlagsNoAuthenticator(t *testing.T) {
	o := oidctoken.NewOptions()
	a, err := o.Authenticator(slog.New(slog.DiscardHandler), nil)
	if a != nil || err != nil || o.Given() {
		t.Errorf("got %v, %v, %v", a, err, o.Given())
	}
	o.IssuerURL, o.ClientID, o.CAFile = "https://x", "y", "/no/such"
	if _, err := o.Authenticator(slog.New(slog.DiscardHandler), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	o.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(o.CAFile, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Authenticator(slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "certificate authority") {
		t.Errorf("got %v", err)
	}
	for _, half := range []oidctoken.Options{{IssuerURL: "https://x"}, {ClientID: "y"}} {
		if !half.Given() || len(half.Validate()) == 0 {
			t.Errorf("%+v counts as no flags", half)
		}
	}
}

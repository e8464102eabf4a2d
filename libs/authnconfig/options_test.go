package authnconfig_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"binnacle/libs/authnconfig"
	"binnacle/libs/oidctoken/oidctest"
)

// TestOptionsSourceAuthenticatesConfiguredIssuer authenticates tokens of an issuer that flags or a
// file configure.
func TestOptionsSourceAuthenticatesConfiguredIssuer(t *testing.T) {
	issuer := oidctest.New(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	setFlags := func(options *authnconfig.Options) {
		options.OIDC.IssuerURL, options.OIDC.ClientID, options.OIDC.UsernamePrefix = issuer.URL(), oidctest.ClientID, "flags:"
		options.OIDC.CAFile = write("ca.crt", issuer.CA())
	}
	withFile := func(content string) func(*authnconfig.Options) {
		return func(options *authnconfig.Options) { options.File = write("authn.yaml", content) }
	}
	jwt := header + "jwt:\n" + issuerConfig(issuer, usernameMapping("file:"))
	for name, test := range map[string]struct {
		change         func(*authnconfig.Options)
		anonymousFixed string
		disallowed     []string
		user           string // user of a token; "" without a source
		anonymous      bool   // the file configures anonymous requests
		err            string
	}{
		"no source": {change: func(*authnconfig.Options) {}},
		"flags":     {change: setFlags, user: "flags:ada"},
		"file":      {change: withFile(jwt), user: "file:ada"},
		"anonymous": {change: withFile(jwt + "anonymous: {enabled: true}\n"), user: "file:ada", anonymous: true},
		"flag for anonymous requests, none in the file": {change: withFile(jwt), anonymousFixed: "a flag says it", user: "file:ada"},
		"flag for anonymous requests, also in the file": {
			change:         withFile(jwt + "anonymous: {enabled: true}\n"),
			anonymousFixed: "a flag says it",
			err:            "anonymous: a flag says it",
		},
		"invalid file":                    {change: withFile("x"), err: "--authentication-config"},
		"flags with the cluster's issuer": {change: setFlags, disallowed: []string{issuer.URL()}, err: "is the issuer of service account tokens"},
		"file with the cluster's issuer":  {change: withFile(jwt), disallowed: []string{issuer.URL()}, err: "URL must not overlap with disallowed issuers"},
		"missing CA file": {
			change: func(options *authnconfig.Options) { setFlags(options); options.OIDC.CAFile = "/no/such" },
			err:    "--oidc-ca-file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := authnconfig.NewOptions()
			test.change(options)
			if errs := options.Validate(); len(errs) > 0 || options.IsSet() != (name != "no source") {
				t.Fatalf("Validate() = %v, IsSet() = %t, want no errors, %t", errs, options.IsSet(), name != "no source")
			}
			source, err := options.Source(authnconfig.Config{
				DisallowedIssuers: test.disallowed,
				AnonymousFixed:    test.anonymousFixed,
				Logger:            slog.New(slog.DiscardHandler),
			})
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("Source() = %v, want %s", err, test.err)
				}
				return
			}
			if err != nil || (source != nil) != (test.user != "") {
				t.Fatalf("Source() = %v, %v, want a source: %t, no error", source, err, test.user != "")
			}
			if source == nil {
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- source.Run(ctx) }()
			defer func() { cancel(); <-done }()
			for source.Check() != nil { // waits for the keys
				if ctx.Err() != nil {
					t.Fatalf("the keys were not read in time: %v", source.Check())
				}
				runtime.Gosched()
			}
			response, ok, err := source.AuthenticateToken(ctx, issuer.Token(nil), nil)
			if !ok || response.User.Name != test.user || (source.Anonymous() != nil) != test.anonymous {
				t.Errorf("got %+v, %v, anonymous setting %v, want user %s, an anonymous setting: %t", response, err,
					source.Anonymous(), test.user, test.anonymous)
			}
		})
	}
	flagsAndFile := authnconfig.NewOptions()
	setFlags(flagsAndFile)
	flagsAndFile.File = "x"
	if errs := flagsAndFile.Validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "mutually exclusive") {
		t.Errorf("both flags: errors = %v, want one about mutually exclusive flags", errs)
	}
}

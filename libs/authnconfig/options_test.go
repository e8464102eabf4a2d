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

// TestOptionsSource authenticates tokens of an issuer that flags or a file configure.
func TestOptionsSource(t *testing.T) {
	i := oidctest.New(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	flags := func(options *authnconfig.Options) {
		options.OIDC.IssuerURL, options.OIDC.ClientID, options.OIDC.UsernamePrefix = i.URL(), oidctest.ClientID, "flags:"
		options.OIDC.CAFile = write("ca.crt", i.CA())
	}
	of := func(content string) func(*authnconfig.Options) {
		return func(options *authnconfig.Options) { options.File = write("authn.yaml", content) }
	}
	jwt := header + "jwt:\n" + issuerConfig(i, usernameMapping("file:"))
	for name, test := range map[string]struct {
		set       func(*authnconfig.Options)
		fixed     string
		issuers   []string
		user      string // user of a token; "" without a source
		anonymous bool   // the file configures anonymous requests
		err       string
	}{
		"nothing":              {set: func(*authnconfig.Options) {}},
		"flags":                {set: flags, user: "flags:ada"},
		"file":                 {set: of(jwt), user: "file:ada"},
		"anonymous":            {set: of(jwt + "anonymous: {enabled: true}\n"), user: "file:ada", anonymous: true},
		"nothing said of them": {set: of(jwt), fixed: "a flag says it", user: "file:ada"},
		"said twice": {
			set:   of(jwt + "anonymous: {enabled: true}\n"),
			fixed: "a flag says it",
			err:   "anonymous: a flag says it",
		},
		"bad file":              {set: of("x"), err: "--authentication-config"},
		"the cluster's issuer":  {set: flags, issuers: []string{i.URL()}, err: "is the issuer of service account tokens"},
		"the same, in the file": {set: of(jwt), issuers: []string{i.URL()}, err: "URL must not overlap with disallowed issuers"},
		"bad CA": {
			set: func(options *authnconfig.Options) { flags(options); options.OIDC.CAFile = "/no/such" },
			err: "--oidc-ca-file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := authnconfig.NewOptions()
			test.set(options)
			if errs := options.Validate(); len(errs) > 0 || options.IsSet() != (name != "nothing") {
				t.Fatalf("Validate() = %v, IsSet() = %t, want no errors, %t", errs, options.IsSet(), name != "nothing")
			}
			source, err := options.Source(authnconfig.Config{
				DisallowedIssuers: test.issuers,
				AnonymousFixed:    test.fixed,
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
			r, ok, err := source.AuthenticateToken(ctx, i.Token(nil), nil)
			if !ok || r.User.Name != test.user || (source.Anonymous() != nil) != test.anonymous {
				t.Errorf("got %+v, %v, anonymous setting %v, want user %s, an anonymous setting: %t", r, err,
					source.Anonymous(), test.user, test.anonymous)
			}
		})
	}
	both := authnconfig.NewOptions()
	flags(both)
	both.File = "x"
	if errs := both.Validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "mutually exclusive") {
		t.Errorf("both flags: errors = %v, want one about mutually exclusive flags", errs)
	}
}

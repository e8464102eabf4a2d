package authnconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"binnacle/libs/authenticator"
	"binnacle/libs/features"
	"binnacle/libs/oidctoken"
	"binnacle/libs/options"
)

// Options are the flags of JSON web tokens of foreign issuers:
// --authentication-config, or the --oidc-* flags.
type Options struct {
	File string
	OIDC *oidctoken.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options { return &Options{OIDC: oidctoken.NewOptions()} }

// AddFlags declares the flags in the section "authentication".
func (o *Options) AddFlags(s *options.Sections) {
	s.Set("authentication").StringVar(&o.File, "authentication-config", o.File, "file with an "+Kind+" ("+V1beta1+"), which is followed as it changes; cannot be mixed with the --oidc-* flags")
	o.OIDC.AddFlags(s)
}

// Validate returns everything that is wrong.
func (o *Options) Validate() []error {
	errs := o.OIDC.Validate()
	if o.File != "" && o.OIDC.Given() {
		errs = append(errs, errors.New("--authentication-config and --oidc-* flags are mutually exclusive"))
	}
	return errs
}

// ValidateGates refuses what the feature gates switch off.
func (o *Options) ValidateGates(g *features.Gates) []error {
	if o.File != "" && !g.Enabled(features.StructuredAuthenticationConfiguration) {
		return []error{fmt.Errorf("--authentication-config needs the feature gate %s", features.StructuredAuthenticationConfiguration)}
	}
	return nil
}

// AnonymousGate tells why the file may not say who stays anonymous (AnonymousFixed of
// Config); empty where the gate lets it.
func AnonymousGate(g *features.Gates) string {
	if g.Enabled(features.AnonymousAuthConfigurableEndpoints) {
		return ""
	}
	return fmt.Sprintf("needs the feature gate %s", features.AnonymousAuthConfigurableEndpoints)
}

// Source is what the flags amount to.
type Source struct {
	authenticator.Token
	// Run keeps keys and configuration up to date until its context ends.
	Run func(context.Context) error
	// Check returns nil when the keys of all issuers are known. Tokens of the
	// other issuers count before that.
	Check func() error
	// Anonymous returns what the file says of anonymous requests now; nil where
	// it says nothing, or there is no file.
	Anonymous func() *Anonymous
}

// Given tells whether the flags name any issuer.
func (o *Options) Given() bool { return o.File != "" || o.OIDC.Given() }

// Source makes what the flags describe, or nil where none was given. The file of
// c is that of the flag.
func (o *Options) Source(c Config) (*Source, error) {
	if c.File = o.File; c.File != "" {
		a, err := New(c)
		if err != nil {
			return nil, err
		}
		return &Source{Token: a, Run: a.Run, Check: a.Check, Anonymous: a.Anonymous}, nil
	}
	if slices.Contains(c.DisallowedIssuers, o.OIDC.IssuerURL) {
		return nil, fmt.Errorf("--oidc-issuer-url: %q is the issuer of service account tokens", o.OIDC.IssuerURL)
	}
	a, err := o.OIDC.Authenticator(c.Logger, c.Withdrawn)
	if err != nil || a == nil {
		return nil, err
	}
	return &Source{
		Token: a, Run: a.Provider().Run, Check: a.Provider().Check,
		Anonymous: func() *Anonymous { return nil },
	}, nil
}

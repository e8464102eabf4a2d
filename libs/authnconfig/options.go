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

// Options holds the flags for JSON web tokens of external issuers: --authentication-config, or the
// --oidc-* flags.
type Options struct {
	File string
	OIDC *oidctoken.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options { return &Options{OIDC: oidctoken.NewOptions()} }

// AddFlags adds the flags to the section "authentication".
func (o *Options) AddFlags(s *options.Sections) {
	s.Set("authentication").StringVar(&o.File, "authentication-config", o.File,
		"File with an "+Kind+" ("+V1beta1+"), which is followed as it changes; cannot be mixed with the --oidc-* flags.")
	o.OIDC.AddFlags(s)
}

// Validate returns all errors.
func (o *Options) Validate() []error {
	errs := o.OIDC.Validate()
	if o.File != "" && o.OIDC.IsSet() {
		errs = append(errs, errors.New("--authentication-config and --oidc-* flags are mutually exclusive"))
	}
	return errs
}

// ValidateGates rejects flags that feature gates disable.
func (o *Options) ValidateGates(g *features.Gates) []error {
	if o.File != "" && !g.Enabled(features.StructuredAuthenticationConfiguration) {
		return []error{fmt.Errorf("--authentication-config needs the feature gate %s",
			features.StructuredAuthenticationConfiguration)}
	}
	return nil
}

// AnonymousGate returns the reason why the file must not configure anonymous requests
// (Config.AnonymousFixed), or "" if the feature gate allows it.
func AnonymousGate(g *features.Gates) string {
	if g.Enabled(features.AnonymousAuthConfigurableEndpoints) {
		return ""
	}
	return fmt.Sprintf("needs the feature gate %s", features.AnonymousAuthConfigurableEndpoints)
}

// Source is the token authenticator that the flags configure.
type Source struct {
	authenticator.Token
	// Run updates keys and configuration until its context ends.
	Run func(context.Context) error
	// Check returns nil if the keys of all issuers are known. Tokens of other issuers are accepted
	// before that.
	Check func() error
	// Anonymous returns the file's current setting for anonymous requests, or nil without one.
	Anonymous func() *Anonymous
}

// IsSet reports whether the flags configure any issuer.
func (o *Options) IsSet() bool { return o.File != "" || o.OIDC.IsSet() }

// Source returns the configured source, or nil if no flag was given. c.File is ignored.
func (o *Options) Source(config Config) (*Source, error) {
	config.File = o.File
	if config.File != "" {
		a, err := New(config)
		if err != nil {
			return nil, err
		}
		return &Source{Token: a, Run: a.Run, Check: a.Check, Anonymous: a.Anonymous}, nil
	}
	if slices.Contains(config.DisallowedIssuers, o.OIDC.IssuerURL) {
		return nil, fmt.Errorf("--oidc-issuer-url: %q is the issuer of service account tokens", o.OIDC.IssuerURL)
	}
	a, err := o.OIDC.Authenticator(config.Logger, config.Withdrawn)
	if err != nil || a == nil {
		return nil, err
	}
	return &Source{
		Token: a, Run: a.Provider().Run, Check: a.Provider().Check,
		Anonymous: func() *Anonymous { return nil },
	}, nil
}

package oidctoken

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"binnacle/libs/options"
)

// noPrefix is the value of --oidc-username-prefix for no prefix.
const noPrefix = "-"

// Options holds the --oidc-* flags (specification: "OpenID Connect flags").
type Options struct {
	IssuerURL      string
	ClientID       string
	UsernameClaim  string
	UsernamePrefix string
	GroupsClaim    string
	GroupsPrefix   string
	RequiredClaims map[string]string
	CAFile         string
	Algorithms     []string

	flags *pflag.FlagSet
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{UsernameClaim: "sub", Algorithms: []string{"RS256"}}
}

// AddFlags adds the flags to the section "authentication".
func (o *Options) AddFlags(sections *options.Sections) {
	flagSet := pflag.NewFlagSet("oidc", pflag.ContinueOnError)
	flagSet.StringVar(&o.IssuerURL, "oidc-issuer-url", o.IssuerURL,
		"HTTPS URL of the OpenID Connect provider whose ID tokens are accepted.")
	flagSet.StringVar(&o.ClientID, "oidc-client-id", o.ClientID, "Client ID that must be an audience of ID tokens.")
	flagSet.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "Claim with the user name.")
	flagSet.StringVar(&o.UsernamePrefix, "oidc-username-prefix", o.UsernamePrefix,
		"Prefix of usernames; '-' for none; when not given, the issuer URL and '#' for all claims but email.")
	flagSet.StringVar(&o.GroupsClaim, "oidc-groups-claim", o.GroupsClaim,
		"Claim with the user's groups, a string or a list of strings.")
	flagSet.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", o.GroupsPrefix, "Prefix of groups.")
	flagSet.StringToStringVar(&o.RequiredClaims, "oidc-required-claim", o.RequiredClaims,
		"KEY=VALUE that the token's claims must contain; may be repeated.")
	flagSet.StringVar(&o.CAFile, "oidc-ca-file", o.CAFile,
		"CA bundle that verifies the provider's server certificate; empty for the host's roots.")
	flagSet.StringSliceVar(&o.Algorithms, "oidc-signing-algs", o.Algorithms,
		"Signing algorithms that are accepted: "+strings.Join(SigningAlgorithms(), ", ")+".")
	o.flags = flagSet
	sections.Set("authentication").AddFlagSet(flagSet)
}

// IsSet reports whether any of the flags was set.
func (o *Options) IsSet() bool {
	set := false
	if o.flags != nil {
		o.flags.VisitAll(func(f *pflag.Flag) { set = set || f.Changed })
	}
	return set || o.IssuerURL != "" || o.ClientID != ""
}

// Validate returns all errors.
func (o *Options) Validate() []error {
	if !o.IsSet() {
		return nil
	}
	var errs []error
	if o.IssuerURL == "" || o.ClientID == "" {
		errs = append(errs, errors.New("--oidc-issuer-url and --oidc-client-id must be specified together when any --oidc-* flags are set"))
	}
	if o.IssuerURL != "" {
		if err := checkIssuerURL(o.IssuerURL); err != nil {
			errs = append(errs, fmt.Errorf("--oidc-issuer-url: %w", err))
		}
	}
	if o.UsernameClaim == "" {
		errs = append(errs, errors.New("--oidc-username-claim must not be empty"))
	}
	if len(o.Algorithms) == 0 {
		errs = append(errs, errors.New("--oidc-signing-algs must name at least one algorithm"))
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(SigningAlgorithms(), a) {
			errs = append(errs, fmt.Errorf("--oidc-signing-algs: unsupported signing algorithm %q", a))
		}
	}
	for name := range o.RequiredClaims {
		if name == "" {
			errs = append(errs, errors.New("--oidc-required-claim: the key is empty"))
		}
	}
	return errs
}

// Authenticator returns the authenticator that the flags configure, or nil if --oidc-issuer-url is
// not set. The caller runs its Provider. withdrawn is used as ProviderConfig.Withdrawn.
func (o *Options) Authenticator(log *slog.Logger, withdrawn func()) (*Authenticator, error) {
	if o.IssuerURL == "" {
		return nil, nil
	}
	providerConfig := ProviderConfig{IssuerURL: o.IssuerURL, Algorithms: o.Algorithms, Withdrawn: withdrawn}
	if o.CAFile != "" {
		ca, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		providerConfig.CA = string(ca)
	}
	p, err := NewProvider(providerConfig, log)
	if err != nil {
		return nil, err
	}
	return New(p, []string{o.ClientID}, ClaimRules{
		UsernameClaim:  o.UsernameClaim,
		UsernamePrefix: o.usernamePrefix(),
		GroupsClaim:    o.GroupsClaim,
		GroupsPrefix:   o.GroupsPrefix,
		Required:       o.RequiredClaims,
	})
}

func (o *Options) usernamePrefix() string {
	switch {
	case o.UsernamePrefix == noPrefix:
		return ""
	case o.UsernamePrefix == "" && o.UsernameClaim != emailClaim:
		return o.IssuerURL + "#"
	}
	return o.UsernamePrefix
}

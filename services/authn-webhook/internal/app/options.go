package app

import (
	"errors"
	"fmt"
	"slices"

	"binnacle/libs/authnconfig"
	"binnacle/libs/callerauth"
	"binnacle/libs/features"
	"binnacle/libs/options"
	"binnacle/libs/satoken"
	"binnacle/libs/servicerunner"
)

// Options configures the service.
type Options struct {
	*servicerunner.Options
	Clients callerauth.Options
	Tokens  TokenOptions
	// Features holds the feature gates. Gates of other cluster components are accepted, too.
	Features *features.Gates
}

// TokenOptions configures the accepted tokens.
type TokenOptions struct {
	Audiences       []string
	File            string
	BootstrapTokens bool
	ServiceAccounts ServiceAccountOptions
	JWT             *authnconfig.Options
	ConfirmLookups  bool
}

// ServiceAccountOptions configures service account tokens.
type ServiceAccountOptions struct {
	Issuers  []string
	KeyFiles []string
	Lookup   bool
}

// NewOptions returns the default options.
func NewOptions() *Options {
	return &Options{
		Options:  servicerunner.NewOptions(Name, defaultPort),
		Features: features.New(),
		Tokens: TokenOptions{
			ServiceAccounts: ServiceAccountOptions{Lookup: true},
			JWT:             authnconfig.NewOptions(),
			ConfirmLookups:  true,
		},
	}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(sections *options.Sections) {
	o.Options.AddFlags(sections)
	sections.Set("generic").Var(o.Features, "feature-gates", features.Help())
	flagSet := sections.Set("authentication")
	o.Clients.AddFlags(flagSet)
	flagSet.StringSliceVar(&o.Tokens.Audiences, "api-audiences", o.Tokens.Audiences,
		"Audiences of the API server; a token must have one of them if the review names no audiences; default: the issuers of service account tokens.")
	flagSet.StringVar(&o.Tokens.File, "token-auth-file", o.Tokens.File,
		"CSV file of tokens: token, user name, uid and, optionally, a quoted list of groups; read at the start.")
	flagSet.BoolVar(&o.Tokens.BootstrapTokens, "enable-bootstrap-token-auth", o.Tokens.BootstrapTokens,
		"Authenticate bootstrap tokens, which are secrets in kube-system.")
	flagSet.StringArrayVar(&o.Tokens.ServiceAccounts.Issuers, "service-account-issuer", o.Tokens.ServiceAccounts.Issuers,
		"Issuer of service account tokens, an https URL or a string without colon; may be repeated.")
	flagSet.StringArrayVar(&o.Tokens.ServiceAccounts.KeyFiles, "service-account-key-file",
		o.Tokens.ServiceAccounts.KeyFiles,
		"PEM file with RSA or ECDSA keys, public or private, or certificates, that verify service account tokens; may be repeated.")
	flagSet.BoolVar(&o.Tokens.ServiceAccounts.Lookup, "service-account-lookup", o.Tokens.ServiceAccounts.Lookup,
		"Accept a service account token that is stored in a secret only while the secret exists.")
	flagSet.BoolVar(&o.Tokens.ConfirmLookups, "confirm-lookups", o.Tokens.ConfirmLookups,
		"Read the objects that a token depends on from the API server in each review, so that deletions take effect at once; otherwise use watches, which may lag.")
	o.Tokens.JWT.AddFlags(sections)
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	return slices.Concat(o.Options.Validate(), o.Features.Validate(), o.Tokens.JWT.ValidateGates(o.Features),
		o.Clients.Validate(o.Serving.ClientCAFile), o.Tokens.validate())
}

// validate returns the errors in the flags.
func (o *TokenOptions) validate() []error {
	errs := append(o.JWT.Validate(), o.ServiceAccounts.validate()...)
	if slices.Contains(o.Audiences, "") {
		errs = append(errs, errors.New("--api-audiences: an audience is empty"))
	}
	return errs
}

// validate returns the errors in the flags.
func (o *ServiceAccountOptions) validate() (errs []error) {
	if (len(o.Issuers) == 0) != (len(o.KeyFiles) == 0) {
		errs = append(errs, errors.New("--service-account-issuer and --service-account-key-file go together"))
	}
	if len(o.KeyFiles) > 0 {
		if _, err := satoken.LoadPublicKeys(o.KeyFiles...); err != nil {
			errs = append(errs, fmt.Errorf("--service-account-key-file: %w", err))
		}
	}
	for _, err := range satoken.ValidateIssuers(o.Issuers) {
		errs = append(errs, fmt.Errorf("--service-account-issuer: %w", err))
	}
	return errs
}

// audiences returns the audiences of the API server.
func (o *TokenOptions) audiences() []string {
	if len(o.Audiences) > 0 {
		return o.Audiences
	}
	return o.ServiceAccounts.Issuers
}

package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"binnacle/libs/chassis"
	"binnacle/libs/options"
)

// Modes of authorization.
const (
	modeNode = "Node"
	modeRBAC = "RBAC"
	modeABAC = "ABAC"
)

func modes() []string { return []string{modeNode, modeRBAC, modeABAC} }

// Options configure the service.
type Options struct {
	*chassis.Options
	Clients ClientOptions
	// Modes are the authorizers in their order.
	Modes      []string
	PolicyFile string
}

// ClientOptions say who may ask for reviews.
type ClientOptions struct {
	RequireCertificate bool
	Names              []string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{Options: chassis.NewOptions(Name, defaultPort), Modes: []string{modeNode, modeRBAC}}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.Options.AddFlags(s)
	f := s.Set("authorization")
	f.StringSliceVar(&o.Modes, "authorization-mode", o.Modes, "ordered list of authorizers: "+strings.Join(modes(), ", "))
	f.StringVar(&o.PolicyFile, "authorization-policy-file", o.PolicyFile, "file with one JSON object per line, the policies of the mode "+modeABAC)
	f.BoolVar(&o.Clients.RequireCertificate, "require-client-certificate", o.Clients.RequireCertificate, "answer only clients with a certificate that --client-ca-file verifies")
	f.StringSliceVar(&o.Clients.Names, "allowed-client-names", o.Clients.Names, "common names that such a certificate must have one of; any when not given")
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	errs := o.Options.Validate()
	if len(o.Modes) == 0 {
		errs = append(errs, errors.New("--authorization-mode must name at least one mode"))
	}
	for i, m := range o.Modes {
		if !slices.Contains(modes(), m) {
			errs = append(errs, fmt.Errorf("--authorization-mode: %q is not one of %v", m, modes()))
		}
		if slices.Contains(o.Modes[:i], m) {
			errs = append(errs, fmt.Errorf("--authorization-mode: %q is given twice", m))
		}
	}
	if slices.Contains(o.Modes, modeABAC) != (o.PolicyFile != "") {
		errs = append(errs, fmt.Errorf("--authorization-mode %s and --authorization-policy-file go together", modeABAC))
	}
	return append(errs, o.Clients.validate(o.Serving.ClientCAFile)...)
}

func (o *ClientOptions) validate(clientCA string) (errs []error) {
	if o.RequireCertificate && clientCA == "" {
		errs = append(errs, errors.New("--require-client-certificate needs --client-ca-file"))
	}
	if len(o.Names) > 0 && !o.RequireCertificate {
		errs = append(errs, errors.New("--allowed-client-names needs --require-client-certificate"))
	}
	return errs
}

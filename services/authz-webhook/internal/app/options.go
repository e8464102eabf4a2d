package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"binnacle/libs/callerauth"
	"binnacle/libs/features"
	"binnacle/libs/options"
	"binnacle/libs/servicerunner"
)

// Modes of authorization.
const (
	modeNode = "Node"
	modeRBAC = "RBAC"
	modeABAC = "ABAC"
)

func modes() []string { return []string{modeNode, modeRBAC, modeABAC} }

// Options configures the service.
type Options struct {
	*servicerunner.Options
	Clients callerauth.Options
	// Modes is the ordered list of authorizers.
	Modes      []string
	PolicyFile string
	// Features holds the feature gates. Gates of other cluster components are accepted, too.
	Features *features.Gates
}

// NewOptions returns the default options.
func NewOptions() *Options {
	return &Options{
		Options:  servicerunner.NewOptions(Name, defaultPort),
		Modes:    []string{modeNode, modeRBAC},
		Features: features.New(),
	}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.Options.AddFlags(s)
	s.Set("generic").Var(o.Features, "feature-gates", features.Help())
	f := s.Set("authorization")
	f.StringSliceVar(&o.Modes, "authorization-mode", o.Modes, "Ordered list of authorizers: "+strings.Join(modes(), ", ")+".")
	f.StringVar(&o.PolicyFile, "authorization-policy-file", o.PolicyFile,
		"File with one JSON object per line, the policies of the mode "+modeABAC+".")
	o.Clients.AddFlags(f)
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	errs := append(o.Options.Validate(), o.Features.Validate()...)
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
	return append(errs, o.Clients.Validate(o.Serving.ClientCAFile)...)
}

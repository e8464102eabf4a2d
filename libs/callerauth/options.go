package callerauth

import (
	"errors"
	"slices"

	"github.com/spf13/pflag"
)

const anyClientFlag = "insecure-allow-any-client"

// Options configures the allowed callers.
type Options struct {
	// AnyClient allows every client that reaches the port.
	AnyClient bool
	// Names holds the allowed common names; none allows any.
	Names []string
}

// AddFlags binds the options to flags.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.AnyClient, anyClientFlag, o.AnyClient,
		"INSECURE: serve any client, not only those with a certificate that --client-ca-file verifies.")
	f.StringSliceVar(&o.Names, "allowed-client-names", o.Names,
		"Common names of the client certificates that are allowed; empty for any.")
}

// Validate returns the errors of the options. clientCA is the file that verifies callers.
func (o *Options) Validate(clientCA string) (errs []error) {
	switch {
	case !o.AnyClient && clientCA == "":
		errs = append(errs, errors.New("--client-ca-file is required to authenticate clients; --"+anyClientFlag+
			" allows any client"))
	case o.AnyClient && len(o.Names) > 0:
		errs = append(errs, errors.New("--allowed-client-names and --"+anyClientFlag+" contradict each other"))
	}
	if slices.Contains(o.Names, "") {
		errs = append(errs, errors.New("--allowed-client-names: a name is empty"))
	}
	return errs
}

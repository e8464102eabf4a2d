// Package command is the command line that creates, checks, renews and rotates the
// certificates of a suite.
package command

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"binnacle/deploy/certs"
)

// UsageError is an error of the command line, for which a program exits with 2.
type UsageError struct{ error }

// flags holds the values of the command line.
type flags struct {
	certs.Options
	step, secrets       string
	rotate, externalCAs []string
	within              time.Duration
}

// New returns the command. Help and errors show it under name, which may have several
// words.
func New(name string) *cobra.Command {
	var parsed flags
	root := &cobra.Command{
		Use:         "certs",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Create and renew the certificates and keys of a suite.",
		Long: "Create the certificates and keys of a suite in a folder, renew those that expire soon,\n" +
			"and print the path and the expiry of each file that was written.",
		Args:          usageArgs(cobra.NoArgs),
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error { return parsed.runEnsure(c.OutOrStdout()) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	p := root.PersistentFlags()
	p.StringVar(&parsed.Dir, "dir", "certs", "Folder of the files.")
	p.StringSliceVar(&parsed.Names, "name", nil, "Additional DNS name of the API server; may be repeated.")
	p.IPSliceVar(&parsed.Addresses, "address", nil, "Additional IP address of the API server; may be repeated.")
	flagSet := root.Flags()
	flagSet.BoolVar(&parsed.Renew, "renew", false, "Replace all certificates, except those of the CAs.")
	flagSet.BoolVar(&parsed.NewCA, "new-ca", false,
		"Replace each CA that is missing, damaged or about to expire, and every certificate that it signed.")
	flagSet.StringSliceVar(&parsed.externalCAs, "external-ca", nil,
		fmt.Sprintf("CA whose key is kept elsewhere, of %v; may be repeated. Signing requests are written for its certificates.", certs.CAs()))
	flagSet.DurationVar(&parsed.Lifetime, "lifetime", certs.DefaultLifetime, "Lifetime of new certificates.")
	flagSet.DurationVar(&parsed.CALifetime, "ca-lifetime", certs.DefaultCALifetime, "Lifetime of new CAs.")
	flagSet.StringVar(&parsed.step, "rotate-ca", "",
		fmt.Sprintf("Step in the rotation of the CAs: %v, in this order; restart the services after each step.",
			certs.AllSteps()))
	flagSet.StringSliceVar(&parsed.rotate, "ca", nil,
		fmt.Sprintf("CA that --rotate-ca rotates, of %v; may be repeated. Without it, all CAs are rotated.", certs.CAs()))
	flagSet.StringVar(&parsed.secrets, "secrets", "", "Write the files as Secrets for deploy/manifests to this YAML file.")
	root.AddCommand(parsed.newCheck())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

func (f *flags) newCheck() *cobra.Command {
	command := &cobra.Command{
		Use:   "check",
		Short: "Print subject, use, issuer, expiry and state of all certificates; exit with 1 if one of them needs attention.",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(command *cobra.Command, _ []string) error { return f.runCheck(command.OutOrStdout()) },
	}
	command.Flags().DurationVar(&f.within, "within", 30*24*time.Hour, "Report certificates that expire within this time.")
	return command
}

// usageArgs returns the errors of a check of arguments as usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return UsageError{err}
		}
		return nil
	}
}

// Run runs a command with arguments and returns the exit code: 0 for success, 1 for a
// failure, 2 for a usage error.
func Run(command *cobra.Command, args []string, out, errs io.Writer) int {
	command.SetArgs(args)
	command.SetOut(out)
	command.SetErr(errs)
	err := command.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(errs, "%s: %v\n", command.CommandPath(), err)
	if _, usage := err.(UsageError); usage {
		fmt.Fprintf(errs, "Run '%s --help' for usage.\n", command.CommandPath())
		return 2
	}
	return 1
}

// validate parses the names of CAs, and checks the lifetimes and the step of a rotation.
func (f *flags) validate() error {
	var err error
	if f.ExternalCAs, err = parseCAs("external-ca", f.externalCAs); err != nil {
		return err
	}
	if _, err = parseCAs("ca", f.rotate); err != nil {
		return err
	}
	for flag, d := range map[string]time.Duration{"lifetime": f.Lifetime, "ca-lifetime": f.CALifetime} {
		if d < time.Hour {
			return UsageError{fmt.Errorf("--%s: %s is shorter than one hour", flag, d)}
		}
	}
	switch step := certs.Step(f.step); step {
	case "", certs.Prepare, certs.Switch, certs.Finish:
	default:
		return UsageError{fmt.Errorf("--rotate-ca: %q is not one of %v", step, certs.AllSteps())}
	}
	return nil
}

// parseCAs returns the CAs with the names that a flag lists.
func parseCAs(flag string, names []string) (out []certs.CA, err error) {
	known := map[string]bool{}
	for _, ca := range certs.CAs() {
		known[string(ca)] = true
	}
	for _, n := range names {
		if !known[n] {
			return nil, UsageError{fmt.Errorf("--%s: %q is not one of %v", flag, n, certs.CAs())}
		}
		out = append(out, certs.CA(n))
	}
	return out, nil
}

// runEnsure creates or rotates certificates and prints the written files.
func (f *flags) runEnsure(out io.Writer) error {
	if err := f.validate(); err != nil {
		return err
	}
	created, err := certs.Ensure(f.Options)
	if err == nil && f.step != "" {
		var more []string
		cas, _ := parseCAs("ca", f.rotate)
		more, err = certs.Rotate(f.Options, certs.Step(f.step), cas...)
		created = append(created, more...)
	}
	if err == nil && f.secrets != "" {
		err = writeSecrets(f.Options, f.secrets)
	}
	for _, path := range created {
		fmt.Fprintln(out, describeFile(path))
	}
	return err
}

// describeFile returns the path of a file, and the expiry of a certificate.
func describeFile(path string) string {
	if expires, err := certs.Expiry(path); err == nil {
		return fmt.Sprintf("%s  expires %s", path, expires.Format(time.DateOnly))
	}
	return path
}

func writeSecrets(options certs.Options, path string) error {
	data, err := certs.Secrets(options)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// runCheck prints a table of all certificates. It returns an error if one needs attention.
func (f *flags) runCheck(out io.Writer) error {
	now := time.Now()
	writer := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(writer, "CERTIFICATE\tSUBJECT\tUSE\tISSUER\tEXPIRES\tDAYS LEFT\tSTATE")
	problems := 0
	for _, entry := range certs.Check(f.Options, now, f.within) {
		state := "ok"
		expires := ""
		days := ""
		if entry.Problem != "" {
			state = strings.ReplaceAll(entry.Problem, "\n", " ")
			problems++
		}
		if !entry.Expires.IsZero() {
			expires = entry.Expires.Format(time.DateOnly)
			days = fmt.Sprint(int(entry.Expires.Sub(now).Hours() / 24))
		}
		fmt.Fprintf(writer, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", entry.Path, entry.Subject, entry.Use, entry.Issuer, expires, days, state)
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	if problems > 0 {
		return fmt.Errorf("%d certificates need attention", problems)
	}
	return nil
}

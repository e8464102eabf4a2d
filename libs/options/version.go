package options

import (
	"fmt"
	"io"

	"binnacle/libs/version"
)

// versionFlag is the requested form of the version: "", "false", "true" or "raw".
type versionFlag string

func (v *versionFlag) String() string { return string(*v) }

// Type returns the values for the help text.
func (v *versionFlag) Type() string { return "true|raw" }

// Set implements pflag.Value.
func (v *versionFlag) Set(s string) error {
	switch s {
	case "", "false", "true", "raw":
		*v = versionFlag(s)
		return nil
	}
	return fmt.Errorf("%q is not one of true, false and raw; the version is always %s", s, version.Kubernetes)
}

func (v *versionFlag) printVersion(writer io.Writer, name string) error {
	if *v == "raw" {
		_, err := fmt.Fprintf(writer, "%#v\n", version.Get())
		return err
	}
	_, err := fmt.Fprintf(writer, "%s %s (binnacle %s)\n", name, version.Kubernetes, version.Suite())
	return err
}

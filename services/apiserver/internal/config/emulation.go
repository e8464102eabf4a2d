package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
)

// EmulationOptions select the Kubernetes version that the server emulates.
type EmulationOptions struct {
	// Versions holds the values of the flag.
	Versions []string
	// Forward and Named serve more APIs than the emulated version had.
	Forward, Named bool

	version *utilversion.Version // nil means the server's own version
}

func (o *EmulationOptions) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.Versions, "emulated-version", nil, fmt.Sprintf("The version of Kubernetes whose APIs, feature gates and defaults the server emulates, as kube=1.%[1]d or 1.%[1]d. Options are: kube=1.%[1]d..1.%[2]d(default:1.%[2]d).", version.OldestEmulated, version.MinorNumber))
	f.BoolVar(&o.Forward, "emulation-forward-compatible", false, "With an older --emulated-version, also serve newer stable and beta versions of the served resources.")
	f.BoolVar(&o.Named, "runtime-config-emulation-forward-compatible", false, "With an older --emulated-version, also serve newer APIs that --runtime-config enables by group and version. If false, such a --runtime-config is an error.")
}

// complete parses the version. Feature gates depend on it.
func (o *EmulationOptions) complete() error {
	for _, given := range o.Versions {
		name, number, named := strings.Cut(given, "=")
		if !named {
			name, number = component, given
		}
		v, err := utilversion.Parse(number)
		switch {
		case err != nil:
			return fmt.Errorf("--emulated-version: %w", err)
		case v.Patch() != 0:
			return fmt.Errorf("--emulated-version: patch version not allowed, got: %s=%s", name, v)
		case name != component:
			return fmt.Errorf("--emulated-version: component not registered: %s", name)
		case o.version != nil:
			return fmt.Errorf("--emulated-version: duplicate version flag, %[1]s=%[2]s and %[1]s=%[3]s", component, o.version, v)
		}
		o.version = utilversion.MajorMinor(v.Major(), v.Minor())
	}
	return nil
}

// component is the name of the component whose version is emulated.
const component = "kube"

func (o *EmulationOptions) validate() (errs []error) {
	oldest, own := utilversion.MajorMinor(1, version.OldestEmulated), utilversion.MajorMinor(1, version.MinorNumber)
	if v := o.version; v != nil && (v.LessThan(oldest) || v.GreaterThan(own)) {
		errs = append(errs, fmt.Errorf("emulation version %s is not between [%s, %s]", v, oldest, own))
	}
	if o.version == nil || o.version.EqualTo(own) {
		if o.Forward {
			errs = append(errs, errors.New("ServerRunOptions.EmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version"))
		}
		if o.Named {
			errs = append(errs, errors.New("ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version"))
		}
	}
	return errs
}

// Emulation returns which APIs are served.
func (o *CompatibilityOptions) Emulation() builtin.Emulation {
	e := builtin.Emulation{Minor: version.MinorNumber, Forward: o.Emulated.Forward, Named: o.Emulated.Named}
	if o.Emulated.version != nil {
		e.Minor = int(o.Emulated.version.Minor())
	}
	return e
}

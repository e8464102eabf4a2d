package config

import (
	"strings"
	"testing"
)

// TestInvalidEmulatedVersionsAreRejected checks the validation of emulated versions and of feature
// gates for them. A value of the map is a part of the error, or "" if the flags are valid.
func TestInvalidEmulatedVersionsAreRejected(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--emulated-version=1.33":                                             "",
		"--emulated-version=kube=v1.31":                                       "",
		"--emulated-version=kube=1.30":                                        "emulation version 1.30 is not between [1.31, 1.33]",
		"--emulated-version=1.34":                                             "emulation version 1.34 is not between [1.31, 1.33]",
		"--emulated-version=1.32.1":                                           "patch version not allowed, got: kube=1.32.1",
		"--emulated-version=1.foo":                                            `"1.foo"`,
		"--emulated-version=wardle=1.2":                                       "component not registered: wardle",
		"--emulated-version=1.31 --emulated-version=kube=1.32":                "duplicate version flag, kube=1.31 and kube=1.32",
		"--emulation-forward-compatible":                                      "ServerRunOptions.EmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version",
		"--runtime-config-emulation-forward-compatible":                       "ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version",
		"--emulation-forward-compatible --emulated-version=1.32":              "",
		"--feature-gates=DeclarativeValidation=false":                         "",
		"--feature-gates=DeclarativeValidation=false --emulated-version=1.32": "feature is PreAlpha at emulated version 1.32",
		"--feature-gates=SidecarContainers=false":                             "feature is locked to true",
		"--feature-gates=SidecarContainers=false --emulated-version=1.32":     "",
	} {
		code, _, errs := asProgram(t, strings.Fields(args)...)
		if (code == 0) != (want == "") || !strings.Contains(errs, want) {
			t.Errorf("%s: got code %d: %s, want error %q", args, code, errs, want)
		}
	}
}

package features

import (
	"fmt"
	"maps"
	"slices"

	"binnacle/libs/version"
)

// absent is the stage of a gate in versions that do not have it yet.
const absent Stage = "PRE-ALPHA"

// Emulate sets the gates to those of a minor version of Kubernetes 1, at least
// version.OldestEmulated. Values that were set before the call stay set.
func (g *Gates) Emulate(minor int) {
	g.specs, g.minor = gates133(), minor
	switch minor {
	case version.OldestEmulated:
		for name, older := range olderGates() {
			g.specs[name] = older.in31
		}
	case version.OldestEmulated + 1:
		for name, older := range olderGates() {
			g.specs[name] = older.in32
		}
	}
}

// Validate returns an error for each set gate that the emulated version does not allow, ordered by
// name.
func (g *Gates) Validate() (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(g.set)) {
		enabled, spec := g.set[name], g.specs[name]
		switch {
		case spec.Stage == absent:
			errs = append(errs, fmt.Errorf("cannot set feature gate %v to %v, feature is PreAlpha at emulated version 1.%d", name, enabled, g.minor))
		case spec.Locked && enabled != spec.Default:
			errs = append(errs, fmt.Errorf("cannot set feature gate %v to %v, feature is locked to %v", name, enabled, spec.Default))
		}
	}
	return errs
}

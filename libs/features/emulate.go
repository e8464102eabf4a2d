package features

import (
	"fmt"
	"maps"
	"slices"

	"binnacle/libs/version"
)

// absent is the stage of a gate in versions before it was there.
const absent Stage = "PRE-ALPHA"

// Emulate has the gates be what they were in a minor version of Kubernetes 1, from
// version.OldestEmulated on. What was given before counts as if it were given after.
func (g *Gates) Emulate(minor int) {
	g.specs, g.minor = known(), minor
	switch minor {
	case version.OldestEmulated:
		for name, was := range before() {
			g.specs[name] = was.in31
		}
	case version.OldestEmulated + 1:
		for name, was := range before() {
			g.specs[name] = was.in32
		}
	}
}

// Validate says what was given that may not be, in the order of the names.
func (g *Gates) Validate() (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(g.set)) {
		on, spec := g.set[name], g.specs[name]
		switch {
		case spec.Stage == absent:
			errs = append(errs, fmt.Errorf("cannot set feature gate %v to %v, feature is PreAlpha at emulated version 1.%d", name, on, g.minor))
		case spec.Locked && on != spec.Default:
			errs = append(errs, fmt.Errorf("cannot set feature gate %v to %v, feature is locked to %v", name, on, spec.Default))
		}
	}
	return errs
}

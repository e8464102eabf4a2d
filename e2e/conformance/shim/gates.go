package shim

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// Gates are the feature gates and versions of a server. They start with those of the test.
type Gates struct {
	Registry basecompatibility.ComponentGlobalsRegistry
	gate     featuregate.MutableVersionedFeatureGate
	version  basecompatibility.MutableEffectiveVersion
}

// NewGates returns the gates of a server.
func NewGates() (*Gates, error) {
	g := &Gates{
		Registry: basecompatibility.NewComponentGlobalsRegistry(),
		gate:     utilfeature.DefaultMutableFeatureGate.DeepCopy(),
		version:  compatibility.DefaultKubeEffectiveVersionForTest(),
	}
	g.version.SetEmulationVersion(g.gate.EmulationVersion())
	return g, g.Registry.Register(basecompatibility.DefaultKubeComponent, g.version, g.gate)
}

// Parse reads flags and sets the gates of the test to those of the server while the test runs.
func (g *Gates) Parse(t featuregatetesting.TB, fs *pflag.FlagSet, flags []string) error {
	if err := fs.Parse(flags); err != nil {
		return err
	}
	if err := g.Registry.Set(); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	if !g.gate.EmulationVersion().EqualTo(utilfeature.DefaultMutableFeatureGate.EmulationVersion()) {
		featuregatetesting.SetFeatureGateEmulationVersionDuringTest(t, utilfeature.DefaultMutableFeatureGate,
			g.version.EmulationVersion())
	}
	for f := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if on := g.gate.Enabled(f); on != utilfeature.DefaultFeatureGate.Enabled(f) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, f, on)
		}
	}
	return nil
}

// Package features is the server's set of feature gates: named switches whose
// stage says what they are by default and whether they may be changed
// (specification: "Feature-gate lifecycle").
package features

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Gate names a feature.
type Gate string

// The gates that this server knows.
const (
	// WatchList lets watches begin with the present state (sendInitialEvents).
	WatchList Gate = "WatchList"
)

// Stage of a gate.
type Stage string

// The stages.
const (
	Alpha Stage = "ALPHA"
	Beta  Stage = "BETA"
	GA    Stage = ""
)

// Spec is what is known of a gate.
type Spec struct {
	Default bool
	Stage   Stage
}

func known() map[Gate]Spec {
	return map[Gate]Spec{
		WatchList: {Default: false, Stage: Beta},
	}
}

// Gates are the switches as they are set. Its zero value is not usable.
type Gates struct{ set map[Gate]bool }

// New returns all gates at their defaults.
func New() *Gates {
	g := &Gates{set: map[Gate]bool{}}
	for name, spec := range known() {
		g.set[name] = spec.Default
	}
	return g
}

// Enabled tells whether a feature is on.
func (g *Gates) Enabled(name Gate) bool { return g.set[name] }

// Set implements pflag.Value: "A=true,B=false", with AllAlpha and AllBeta for
// all of a stage.
func (g *Gates) Set(s string) error {
	for _, pair := range strings.Split(s, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("missing bool value for %s", name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("invalid value of %s=%s: %w", name, value, err)
		}
		if err := g.one(Gate(strings.TrimSpace(name)), on); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gates) one(name Gate, on bool) error {
	stages := map[Gate]Stage{"AllAlpha": Alpha, "AllBeta": Beta}
	if stage, ok := stages[name]; ok {
		for n, spec := range known() {
			if spec.Stage == stage {
				g.set[n] = on
			}
		}
		return nil
	}
	spec, ok := known()[name]
	if !ok {
		return fmt.Errorf("unrecognized feature gate: %s", name)
	}
	if spec.Stage == GA && on != spec.Default {
		return fmt.Errorf("cannot set feature gate %v to %v, feature is locked to %v", name, on, spec.Default)
	}
	g.set[name] = on
	return nil
}

// String implements pflag.Value.
func (g *Gates) String() string {
	var out []string
	for name, on := range g.set {
		if on != known()[name].Default {
			out = append(out, fmt.Sprintf("%s=%t", name, on))
		}
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}

// Type implements pflag.Value.
func (g *Gates) Type() string { return "mapStringBool" }

// Help lists the gates for --help.
func Help() string {
	var lines []string
	for name, spec := range known() {
		lines = append(lines, fmt.Sprintf("%s=true|false (%s - default=%t)", name, spec.Stage, spec.Default))
	}
	sort.Strings(lines)
	return "A set of key=value pairs that describe feature gates for alpha/experimental features. Options are:\n" + strings.Join(lines, "\n")
}

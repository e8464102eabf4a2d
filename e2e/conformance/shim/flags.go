package shim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// owned are flags that the shim sets itself.
var owned = []string{"feature-gates", "emulated-version", "secure-port", "token-auth-file"}

// flagsOf returns the flags for options that differ from the defaults.
func flagsOf(o *options.ServerRunOptions) []string {
	defaults := map[string]string{}
	visit(options.NewServerRunOptions(), func(f *pflag.Flag) { defaults[f.Name] = f.Value.String() })
	var out []string
	visit(o, func(f *pflag.Flag) {
		if slices.Contains(owned, f.Name) || f.Value.String() == defaults[f.Name] {
			return
		}
		for _, value := range texts(o, f) {
			out = append(out, "--"+f.Name+"="+value)
		}
	})
	return out
}

// without returns the flags in lists whose names are not in given. It keeps flags whose values the
// server merges.
func without(given []string, lists ...[]string) (out []string) {
	named := map[string]bool{}
	for _, flag := range given {
		named[flagName(flag)] = true
	}
	for _, flag := range slices.Concat(lists...) {
		if name := flagName(flag); name == "feature-gates" || name == "runtime-config" || !named[name] {
			out = append(out, flag)
		}
	}
	return out
}

func flagName(flag string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
	return name
}

func visit(o *options.ServerRunOptions, do func(*pflag.Flag)) {
	sets := o.Flags()
	for _, name := range sets.Order {
		sets.FlagSets[name].VisitAll(do)
	}
}

// texts returns the values of a flag as on a command line.
func texts(o *options.ServerRunOptions, f *pflag.Flag) []string {
	if f.Name == "tls-sni-cert-key" {
		var out []string
		for _, pair := range o.SecureServing.SNICertKeys {
			out = append(out, pair.String())
		}
		return out
	}
	if s, ok := f.Value.(pflag.SliceValue); ok {
		if f.Value.Type() == "stringArray" { // commas do not separate its values
			return s.GetSlice()
		}
		return []string{strings.Join(s.GetSlice(), ",")}
	}
	return []string{strings.TrimSuffix(strings.TrimPrefix(f.Value.String(), "["), "]")}
}

// gateFlags returns the flags for feature gates that a test has changed in its own process.
func gateFlags() []string {
	var out []string
	gate := utilfeature.DefaultMutableFeatureGate
	version := gate.EmulationVersion()
	if v := fmt.Sprintf("%d.%d", version.Major(), version.Minor()); v != release {
		out = append(out, "--emulated-version="+v)
	}
	var changed []string
	for name, spec := range gate.GetAll() {
		if name == "AllAlpha" || name == "AllBeta" {
			continue
		}
		if on := gate.Enabled(name); on != spec.Default {
			changed = append(changed, fmt.Sprintf("%s=%t", name, on))
		}
	}
	if slices.Sort(changed); len(changed) > 0 {
		out = append(out, "--feature-gates="+strings.Join(changed, ","))
	}
	return out
}

// release is the version of Kubernetes.
const release = "1.33"

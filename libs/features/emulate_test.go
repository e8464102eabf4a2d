package features_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"binnacle/libs/features"
)

// TestEmulatedVersionSetsGates checks the gates of emulated versions, for any order of the flags.
func TestEmulatedVersionSetsGates(t *testing.T) {
	for _, test := range []struct {
		name  string
		minor int
		gates string
		on    []features.Gate
		off   []features.Gate
		err   string
	}{
		{
			name:  "1.33",
			minor: 33,
			on:    []features.Gate{"DeclarativeValidation", "InPlacePodVerticalScaling"},
			off:   []features.Gate{"WatchList"},
		},
		{
			name:  "1.32",
			minor: 32,
			on:    []features.Gate{"WatchList", "AuthorizeWithSelectors"},
			off:   []features.Gate{"DeclarativeValidation", "InPlacePodVerticalScaling"},
		},
		{name: "1.31", minor: 31, off: []features.Gate{"WatchList", "AuthorizeWithSelectors", "DeclarativeValidation"}},
		{
			name:  "beta then",
			minor: 32,
			gates: "AllBeta=false",
			off:   []features.Gate{"WatchList", "SidecarContainers"},
			on:    []features.Gate{"StructuredAuthorizationConfiguration"},
		},
		{
			name:  "alpha then",
			minor: 32,
			gates: "AllAlpha=true",
			on:    []features.Gate{"CoordinatedLeaderElection"},
			off:   []features.Gate{"PodTopologyLabelsAdmission"},
		},
		{name: "not locked then", minor: 32, gates: "SidecarContainers=false", off: []features.Gate{"SidecarContainers"}},
		{
			name:  "locked now",
			minor: 33,
			gates: "SidecarContainers=false",
			err:   "cannot set feature gate SidecarContainers to false, feature is locked to true",
		},
		{
			name:  "not there then",
			minor: 32,
			gates: "DeclarativeValidation=true",
			err:   "cannot set feature gate DeclarativeValidation to true, feature is PreAlpha at emulated version 1.32",
		},
		{
			name:  "not there then, off",
			minor: 31,
			gates: "AllowUnsafeMalformedObjectDeletion=false",
			err:   "feature is PreAlpha at emulated version 1.31",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := features.New()
			if err := g.Set(test.gates); err != nil {
				t.Fatal(err)
			}
			g.Emulate(test.minor)
			err := errors.Join(g.Validate()...)
			if (test.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			for _, name := range test.on {
				if !g.Enabled(name) {
					t.Errorf("got %s disabled, want it enabled", name)
				}
			}
			for _, name := range test.off {
				if g.Enabled(name) {
					t.Errorf("got %s enabled, want it disabled", name)
				}
			}
		})
	}
}

// TestEmulateMetric checks that the metric has the stages of the emulated version.
func TestEmulateMetric(t *testing.T) {
	g, reg := features.New(), prometheus.NewRegistry()
	g.Emulate(32)
	if err := g.Register(reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]string{}
	for _, m := range families[0].Metric {
		stages[m.Label[0].GetValue()] = m.Label[1].GetValue()
	}
	if _, ok := stages["DeclarativeValidation"]; ok || stages["ClusterTrustBundle"] != "ALPHA" ||
		stages["SidecarContainers"] != "BETA" {
		t.Errorf("got stages %v, want no DeclarativeValidation, ClusterTrustBundle ALPHA, SidecarContainers BETA", stages)
	}
	if n, err := testutil.GatherAndCount(reg, "kubernetes_feature_enabled"); n < 100 || err != nil {
		t.Errorf("%d series, %v, want n at least 100, no error", n, err)
	}
}

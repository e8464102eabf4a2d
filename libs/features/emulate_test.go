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
		name     string
		minor    int
		flag     string
		enabled  []features.Gate
		disabled []features.Gate
		err      string
	}{
		{
			name:     "1.33",
			minor:    33,
			enabled:  []features.Gate{"DeclarativeValidation", "InPlacePodVerticalScaling"},
			disabled: []features.Gate{"WatchList"},
		},
		{
			name:     "1.32",
			minor:    32,
			enabled:  []features.Gate{"WatchList", "AuthorizeWithSelectors"},
			disabled: []features.Gate{"DeclarativeValidation", "InPlacePodVerticalScaling"},
		},
		{name: "1.31", minor: 31, disabled: []features.Gate{"WatchList", "AuthorizeWithSelectors", "DeclarativeValidation"}},
		{
			name:     "beta in 1.32, all beta gates disabled",
			minor:    32,
			flag:     "AllBeta=false",
			disabled: []features.Gate{"WatchList", "SidecarContainers"},
			enabled:  []features.Gate{"StructuredAuthorizationConfiguration"},
		},
		{
			name:     "alpha in 1.32, all alpha gates enabled",
			minor:    32,
			flag:     "AllAlpha=true",
			enabled:  []features.Gate{"CoordinatedLeaderElection"},
			disabled: []features.Gate{"PodTopologyLabelsAdmission"},
		},
		{name: "not locked in 1.32", minor: 32, flag: "SidecarContainers=false", disabled: []features.Gate{"SidecarContainers"}},
		{
			name:  "locked in 1.33",
			minor: 33,
			flag:  "SidecarContainers=false",
			err:   "cannot set feature gate SidecarContainers to false, feature is locked to true",
		},
		{
			name:  "unknown in 1.32",
			minor: 32,
			flag:  "DeclarativeValidation=true",
			err:   "cannot set feature gate DeclarativeValidation to true, feature is PreAlpha at emulated version 1.32",
		},
		{
			name:  "unknown in 1.31, disabled",
			minor: 31,
			flag:  "AllowUnsafeMalformedObjectDeletion=false",
			err:   "feature is PreAlpha at emulated version 1.31",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := features.New()
			if err := g.Set(test.flag); err != nil {
				t.Fatal(err)
			}
			g.Emulate(test.minor)
			err := errors.Join(g.Validate()...)
			if (test.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			for _, name := range test.enabled {
				if !g.Enabled(name) {
					t.Errorf("got %s disabled, want it enabled", name)
				}
			}
			for _, name := range test.disabled {
				if g.Enabled(name) {
					t.Errorf("got %s enabled, want it disabled", name)
				}
			}
		})
	}
}

// TestMetricShowsStagesOfEmulatedVersion checks that the metric has the stages of the emulated
// version.
func TestMetricShowsStagesOfEmulatedVersion(t *testing.T) {
	gates, registry := features.New(), prometheus.NewRegistry()
	gates.Emulate(32)
	if err := gates.Register(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
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
	if series, err := testutil.GatherAndCount(registry, "kubernetes_feature_enabled"); series < 100 || err != nil {
		t.Errorf("got %d series, error %v, want at least 100 series", series, err)
	}
}

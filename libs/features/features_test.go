package features_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"binnacle/libs/features"
)

// TestSetEnablesAndDisablesGates checks which gates are on for the values of --feature-gates.
func TestSetEnablesAndDisablesGates(t *testing.T) {
	for _, test := range []struct {
		name, args        string
		enabled, disabled []features.Gate
		err               string
	}{
		{
			name:     "defaults",
			enabled:  []features.Gate{"DeclarativeValidation", "APIServerTracing"},
			disabled: []features.Gate{"WatchList", "CBORServingAndStorage", "NoSuchGate"},
		},
		{
			name:     "one gate enabled, one disabled",
			args:     "--feature-gates=WatchList=true, APIServerTracing=false",
			enabled:  []features.Gate{"WatchList"},
			disabled: []features.Gate{"APIServerTracing"},
		},
		{
			name:     "gate given twice, last value wins",
			args:     "--feature-gates=WatchList=true --feature-gates=kube:WatchList=false,CBORServingAndStorage=1",
			enabled:  []features.Gate{"CBORServingAndStorage"},
			disabled: []features.Gate{"WatchList"},
		},
		{
			name:     "all gates of a stage",
			args:     "--feature-gates=AllAlpha=true,AllBeta=false",
			enabled:  []features.Gate{"CBORServingAndStorage"},
			disabled: []features.Gate{"DeclarativeValidation", "APIServerTracing"},
		},
		{
			name:     "gate overrides its stage",
			args:     "--feature-gates=WatchList=true,AllBeta=false",
			enabled:  []features.Gate{"WatchList"},
			disabled: []features.Gate{"DeclarativeValidation"},
		},
		{
			name: "locked gate with its own value",
			args: "--feature-gates=ConsistentListFromCache=true,AnyVolumeDataSource=true",
			err:  "",
		},
		{name: "unknown", args: "--feature-gates=NoSuchGate=true", err: "unrecognized feature gate: NoSuchGate"},
		{name: "unknown component", args: "--feature-gates=wardle:WatchList=true", err: "component not registered: wardle"},
		{name: "no value", args: "--feature-gates=WatchList", err: "missing bool value for WatchList"},
		{
			name: "invalid value",
			args: "--feature-gates=WatchList=maybe",
			err:  "invalid value of WatchList=maybe, err: invalid syntax",
		},
		{
			name: "locked gate disabled",
			args: "--feature-gates=CustomResourceFieldSelectors=false",
			err:  "cannot set feature gate CustomResourceFieldSelectors to false, feature is locked to true",
		},
		{
			name:     "gates that are not locked, disabled",
			args:     "--feature-gates=MultiCIDRServiceAllocator=false,ExecProbeTimeout=false,TopologyManagerPolicyOptions=false",
			disabled: []features.Gate{"MultiCIDRServiceAllocator", "ExecProbeTimeout", "TopologyManagerPolicyOptions"},
		},
		{
			name:     "gates of client-go",
			args:     "--feature-gates=InformerResourceVersion=true,WatchListClient=true,ClientsAllowCBOR=true,ClientsPreferCBOR=true,InOrderInformers=false",
			enabled:  []features.Gate{"InformerResourceVersion", "WatchListClient", "ClientsAllowCBOR", "ClientsPreferCBOR"},
			disabled: []features.Gate{"InOrderInformers"},
		},
		{
			name:    "names that differ from their Go constants",
			args:    "--feature-gates=CustomCPUCFSQuotaPeriod=true,RuntimeClassInImageCriApi=true",
			enabled: []features.Gate{"CustomCPUCFSQuotaPeriod", "RuntimeClassInImageCriApi"},
		},
		{
			name: "Go constant instead of the name",
			args: "--feature-gates=RuntimeClassInImageCriAPI=true",
			err:  "unrecognized feature gate: RuntimeClassInImageCriAPI",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			gates := features.New()
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.Var(gates, "feature-gates", features.Help())
			var args []string
			if test.args != "" {
				args = strings.Split(test.args, " --")
			}
			for i := range args {
				args[i] = "--" + strings.TrimPrefix(args[i], "--")
			}
			err := errors.Join(append([]error{flags.Parse(args)}, gates.Validate()...)...)
			if test.err == "" != (err == nil) || err != nil && !strings.HasSuffix(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			for _, name := range test.enabled {
				if !gates.Enabled(name) {
					t.Errorf("got %s disabled, want it enabled", name)
				}
			}
			for _, name := range test.disabled {
				if gates.Enabled(name) {
					t.Errorf("got %s enabled, want it disabled", name)
				}
			}
		})
	}
}

// TestMetricReportsEnabledGates checks the values of the metric for gates that are set by name and
// by stage.
func TestMetricReportsEnabledGates(t *testing.T) {
	gates := features.New()
	if err := gates.Set("WatchList=true,AllAlpha=true,CBORServingAndStorage=false"); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	if err := gates.Register(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()+"/"+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
	}
	for series, want := range map[string]float64{
		"WatchList/BETA": 1, "CBORServingAndStorage/ALPHA": 0, "MutatingAdmissionPolicy/ALPHA": 1, "AnyVolumeDataSource/": 1,
		"AllAlpha/ALPHA": 1, "AllBeta/BETA": 0, "KMSv1/DEPRECATED": 0,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (%t), want %v", series, value, ok, want)
		}
	}
}

// TestWarnLogsGatesThatWillBeRemoved checks that only gates that are set and will be removed are
// logged.
func TestWarnLogsGatesThatWillBeRemoved(t *testing.T) {
	gates := features.New()
	if err := gates.Set("AnyVolumeDataSource=true,KMSv1=true,WatchList=true"); err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	gates.Warn(slog.New(slog.NewTextHandler(&logged, nil)))
	if log := logged.String(); !strings.Contains(log, "gate=AnyVolumeDataSource") || !strings.Contains(log,
		"gate=KMSv1") || strings.Contains(log, "gate=WatchList") {
		t.Errorf("got log %s, want warnings of AnyVolumeDataSource and KMSv1 only", log)
	}
}

// TestHelpListsChangeableGates checks that the help omits gates that are locked.
func TestHelpListsChangeableGates(t *testing.T) {
	help := features.Help()
	for _, line := range []string{"kube:AllAlpha=true|false (ALPHA - default=false)",
		"kube:WatchList=true|false (BETA - default=false)"} {
		if !strings.Contains(help, line) {
			t.Errorf("got help %s, want the line %q", help, line)
		}
	}
	if strings.Contains(help, "AnyVolumeDataSource") {
		t.Errorf("got help %s with the locked gate AnyVolumeDataSource, want only gates that can change", help)
	}
}

package config

import (
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/admission/plugins"
)

// TestFlagsSelectAdmissionPlugins checks which plugins are enabled by default and by flags.
func TestFlagsSelectAdmissionPlugins(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options           AdmissionOptions
		enabled, disabled []string
	}{
		"defaults":        {enabled: []string{"LimitRanger", "ResourceQuota"}, disabled: []string{"AlwaysPullImages", "NodeRestriction"}},
		"node authorizer": {options: AdmissionOptions{mayAuthorizeNodes: true}, enabled: []string{"NodeRestriction"}},
		"one more plugin": {options: AdmissionOptions{Enable: []string{"AlwaysPullImages"}}, enabled: []string{"AlwaysPullImages", "LimitRanger"}},
		"one less plugin": {options: AdmissionOptions{Disable: []string{"LimitRanger"}}, disabled: []string{"LimitRanger"}},
		"deprecated flag with one plugin": {
			options:  AdmissionOptions{AdmissionControl: []string{"LimitRanger"}},
			enabled:  []string{"LimitRanger"},
			disabled: []string{"ResourceQuota"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, plugin := range plugins.Names() {
				if enabled := test.options.Enabled(plugin); enabled && slices.Contains(test.disabled, plugin) || !enabled && slices.Contains(test.enabled, plugin) {
					t.Errorf("plugin %s: got enabled = %t, want %t", plugin, enabled, !enabled)
				}
			}
		})
	}
}

package config

import (
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/admission/plugins"
)

// TestEnabledAdmissionPlugins checks which plugins are enabled by default and by flags.
func TestEnabledAdmissionPlugins(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		o       AdmissionOptions
		on, off []string
	}{
		"the default":   {on: []string{"LimitRanger", "ResourceQuota"}, off: []string{"AlwaysPullImages", "NodeRestriction"}},
		"with nodes":    {o: AdmissionOptions{mayAuthorizeNodes: true}, on: []string{"NodeRestriction"}},
		"with one more": {o: AdmissionOptions{Enable: []string{"AlwaysPullImages"}}, on: []string{"AlwaysPullImages", "LimitRanger"}},
		"with one less": {o: AdmissionOptions{Disable: []string{"LimitRanger"}}, off: []string{"LimitRanger"}},
		"only one, old flag": {
			o:   AdmissionOptions{AdmissionControl: []string{"LimitRanger"}},
			on:  []string{"LimitRanger"},
			off: []string{"ResourceQuota"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, plugin := range plugins.Names() {
				if on := test.o.Enabled(plugin); on && slices.Contains(test.off, plugin) || !on && slices.Contains(test.on, plugin) {
					t.Errorf("plugin %s: got enabled = %t, want %t", plugin, on, !on)
				}
			}
		})
	}
}

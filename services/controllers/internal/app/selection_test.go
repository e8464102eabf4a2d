package app

import "testing"

// TestSelectionDeterminesControllers checks which controllers a value of --controllers selects.
func TestSelectionDeterminesControllers(t *testing.T) {
	tests := []struct {
		name  string
		items selection
		on    map[string]bool
	}{
		{
			name:  "all",
			items: selection{"*"},
			on:    map[string]bool{"namespace-controller": true, "garbage-collector-controller": true},
		},
		{name: "none", items: selection{}, on: map[string]bool{"namespace-controller": false}},
		{
			name:  "one",
			items: selection{"namespace-controller"},
			on:    map[string]bool{"namespace-controller": true, "resourcequota-controller": false},
		},
		{
			name: "all but one", items: selection{"*", "-namespace-controller"},
			on: map[string]bool{"namespace-controller": false, "resourcequota-controller": true},
		},
		{
			name: "old names", items: selection{"*", "-garbagecollector"},
			on: map[string]bool{"garbage-collector-controller": false, "namespace-controller": true},
		},
		{
			name:  "first mention decides",
			items: selection{"-namespace", "namespace", "*"},
			on:    map[string]bool{"namespace-controller": false},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if errs := test.items.validate(); len(errs) > 0 {
				t.Error(errs)
			}
			for name, want := range test.on {
				if got := test.items.isSelected(name); got != want {
					t.Errorf("selection %q: isSelected(%q) = %t, want %t", test.items, name, got, want)
				}
			}
		})
	}
}

// TestSelectionRejectsUnknownNames checks that the error has the wording of
// kube-controller-manager.
func TestSelectionRejectsUnknownNames(t *testing.T) {
	errs := selection{"*", "-nodelifecycle", "namespace"}.validate()
	if len(errs) != 1 || errs[0].Error() != `--controllers: "nodelifecycle" is not in the list of known controllers` {
		t.Errorf("validate() = %v; want one error, `--controllers: \"nodelifecycle\" is not in the list of known controllers`", errs)
	}
}

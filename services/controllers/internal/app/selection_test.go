package app

import "testing"

func TestSelection(t *testing.T) {
	tests := []struct {
		name  string
		items selection
		on    map[string]bool
	}{
		{"all", selection{"*"}, map[string]bool{"namespace-controller": true, "garbage-collector-controller": true}},
		{"none", selection{}, map[string]bool{"namespace-controller": false}},
		{"one", selection{"namespace-controller"}, map[string]bool{"namespace-controller": true, "resourcequota-controller": false}},
		{"all but one", selection{"*", "-namespace-controller"}, map[string]bool{"namespace-controller": false, "resourcequota-controller": true}},
		{"old names", selection{"*", "-garbagecollector"}, map[string]bool{"garbage-collector-controller": false, "namespace-controller": true}},
		{"first mention decides", selection{"-namespace", "namespace", "*"}, map[string]bool{"namespace-controller": false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if errs := tt.items.validate(); len(errs) > 0 {
				t.Error(errs)
			}
			for name, want := range tt.on {
				if got := tt.items.has(name); got != want {
					t.Errorf("%s: %t, want %t", name, got, want)
				}
			}
		})
	}
}

func TestSelectionRejectsUnknownNames(t *testing.T) {
	errs := selection{"*", "-nodelifecycle", "namespace"}.validate()
	if len(errs) != 1 || errs[0].Error() != `--controllers: "nodelifecycle" is not in the list of known controllers` {
		t.Errorf("validate() = %v", errs)
	}
}

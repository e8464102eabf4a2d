package builtin_test

import (
	"testing"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// unchecked lists the kinds whose new or changed objects have no rules beyond metadata, with the
// reason.
var unchecked = map[string]string{
	"v1/serviceaccounts": "references may not exist yet, and names are validated on use",
}

// TestEveryKindHasRules checks that kinds without rules are listed, because they accept any object.
func TestEveryKindHasRules(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, kind := range all.Kinds() {
		name := nameOf(kind)
		known[name] = true
		checked := kind.Create.Validate != nil && kind.Update.Validate != nil
		switch reason, listed := unchecked[name]; {
		case kind.Virtual:
		case checked && listed:
			t.Errorf("%s is listed, but has rules", name)
		case !checked && !listed:
			t.Errorf("%s: got rules for create %t, update %t", name, kind.Create.Validate != nil, kind.Update.Validate != nil)
		case listed && reason == "":
			t.Errorf("%s is listed without a reason", name)
		}
	}
	for name := range unchecked {
		if !known[name] {
			t.Errorf("no kind %s, want one", name)
		}
	}
}

package builtin_test

import (
	"testing"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// unchecked are the kinds whose new or changed objects have no rules beyond those
// of metadata, and why.
var unchecked = map[string]string{
	"v1/serviceaccounts": "what it refers to may not exist yet, and its names are looked at when they are used",
}

// A kind without rules takes anything: that must have been decided.
func TestEveryKindHasRules(t *testing.T) {
	all, err := builtin.Everything(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range all.Kinds() {
		name := nameOf(k)
		known[name] = true
		checked := k.Create.Validate != nil && k.Update.Validate != nil
		switch reason, listed := unchecked[name]; {
		case k.Virtual:
		case checked && listed:
			t.Errorf("%s has rules and stands on the list", name)
		case !checked && !listed:
			t.Errorf("%s has no rules: create %t, update %t", name, k.Create.Validate != nil, k.Update.Validate != nil)
		case listed && reason == "":
			t.Errorf("%s stands on the list without a reason", name)
		}
	}
	for name := range unchecked {
		if !known[name] {
			t.Errorf("there is no kind %s", name)
		}
	}
}

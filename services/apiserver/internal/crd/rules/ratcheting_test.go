package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
)

// TestUnchangedValuesOnlyWarn checks that a rule that fails for an unchanged value gives a warning.
// It gives an error if the value or the rule depends on a change.
func TestUnchangedValuesOnlyWarn(t *testing.T) {
	schemaProps := parseSchema(t, `{"type":"object","x-kubernetes-validations":[{"rule":"self.kind == 'K'"}],"properties":{
		"spec":{"type":"object","x-kubernetes-validations":[{"rule":"self.n > 0","message":"spec"}],"properties":{
			"n":{"type":"integer","x-kubernetes-validations":[
				{"rule":"self > 0","message":"n"},
				{"rule":"self >= oldSelf || self > 0","message":"transition"}]},
			"l":{"type":"array","maxItems":5,"items":{"type":"integer","x-kubernetes-validations":[
				{"rule":"self > 0","message":"item"}]}},
			"x":{"type":"string"}}}}}`)
	program, err := schema.Compile(schemaProps)
	if err != nil {
		t.Fatal(err)
	}
	ruleSet := compiler.Compile(schemaProps, program)
	tests := []struct{ old, new, errors, warnings string }{ // messages of the rules, separated by commas
		{
			old:      `{"kind":"X","spec":{"n":0}}`,
			new:      `{"kind":"X","spec":{"n":0}}`,
			errors:   "failed rule: self.kind == 'K'",
			warnings: "spec,n",
		},
		{old: `{"kind":"K","spec":{"n":0}}`, new: `{"kind":"K","spec":{"n":0,"x":"y"}}`, errors: "spec", warnings: "n"},
		{old: `{"kind":"K","spec":{"n":-1}}`, new: `{"kind":"K","spec":{"n":0}}`, errors: "spec,n", warnings: ""},
		{old: `{"kind":"K","spec":{"n":0}}`, new: `{"kind":"K","spec":{"n":-1}}`, errors: "spec,n,transition", warnings: ""},
		{old: `{"kind":"K","spec":{"n":1,"l":[0]}}`, new: `{"kind":"K","spec":{"n":2,"l":[0]}}`, errors: "", warnings: "item"},
		{old: `{"kind":"K","spec":{"n":1,"l":[0]}}`, new: `{"kind":"K","spec":{"n":1,"l":[0,1]}}`, errors: "item", warnings: ""},
	}
	for _, test := range tests {
		var warnings, errs []string
		warn := func(w string) { warnings = append(warnings, w[strings.LastIndex(w, ": ")+2:]) }
		for _, e := range ruleSet.Evaluate(t.Context(), parseDoc(t, test.new), parseDoc(t, test.old), warn, nil) {
			errs = append(errs, e.Detail)
		}
		if strings.Join(errs, ",") != test.errors || strings.Join(warnings, ",") != test.warnings {
			t.Errorf("%s after %s: got errors %q, warnings %q, want errors %q, warnings %q",
				test.new, test.old, errs, warnings, test.errors, test.warnings)
		}
	}
}

// TestNoRatchetingReportsUnchangedValues checks that with NoRatcheting, a rule that fails for an
// unchanged value gives an error, and a rule with optionalOldSelf is not evaluated without an old
// value.
func TestNoRatchetingReportsUnchangedValues(t *testing.T) {
	props := parseSchema(t, `{"type":"object","properties":{
		"n":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0","message":"n"}]},
		"o":{"type":"integer","x-kubernetes-validations":[{"rule":"oldSelf.hasValue()","optionalOldSelf":true,"message":"o"}]}}}`)
	program, err := schema.Compile(props)
	if err != nil {
		t.Fatal(err)
	}
	for noRatcheting, want := range map[bool]string{false: "o", true: "n"} { // the rule that gives an error
		noRatchetingCompiler := rules.NewCompiler()
		noRatchetingCompiler.NoRatcheting = noRatcheting
		var errs []string
		for _, e := range noRatchetingCompiler.Compile(props, program).Evaluate(t.Context(), parseDoc(t, `{"n":0,"o":1}`), parseDoc(t, `{"n":0}`), nil, nil) {
			errs = append(errs, e.Detail)
		}
		if got := strings.Join(errs, ","); got != want {
			t.Errorf("NoRatcheting %t: got errors %q, want %q", noRatcheting, got, want)
		}
	}
}

// TestManyUnchangedItemsOnlyWarn checks that invalid items of an unchanged list are tolerated after one
// comparison of the list. A comparison per item would take longer than the test's timeout.
func TestManyUnchangedItemsOnlyWarn(t *testing.T) {
	props := parseSchema(t, `{"type":"object","properties":{
		"n":{"type":"integer"},
		"l":{"type":"array","items":{
			"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},
			"x-kubernetes-validations":[{"rule":"self.a > 1"}]}}}}`)
	program, err := schema.Compile(props)
	if err != nil {
		t.Fatal(err)
	}
	ruleSet := compiler.Compile(props, program)
	const many = 100_000
	// text returns an object with equal items. n differs, so that the object has changed.
	text := func(item string, n int) string {
		return fmt.Sprintf(`{"l":[%s%s],"n":%d}`, strings.Repeat(item+",", many-1), item, n)
	}
	for _, test := range []struct {
		oldItem                string
		wantErrs, wantWarnings int
	}{
		{oldItem: `{"b":2,"a":1}`, wantErrs: 0, wantWarnings: many},
		{oldItem: `{"b":3,"a":1}`, wantErrs: many, wantWarnings: 0},
	} {
		warnings := 0
		doc, old := parseDoc(t, text(`{"a":1,"b":2}`, 1)), parseDoc(t, text(test.oldItem, 2))
		errs := ruleSet.Evaluate(t.Context(), doc, old, func(string) { warnings++ }, nil)
		if len(errs) != test.wantErrs {
			t.Errorf("after items %s: got %d errors, want %d", test.oldItem, len(errs), test.wantErrs)
		}
		if warnings != test.wantWarnings {
			t.Errorf("after items %s: got %d warnings, want %d", test.oldItem, warnings, test.wantWarnings)
		}
	}
}

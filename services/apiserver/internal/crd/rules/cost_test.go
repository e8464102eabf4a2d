package rules_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
)

// TestEvaluationStopsAtCostBudget checks that rules that cost too much end with one error.
func TestEvaluationStopsAtCostBudget(t *testing.T) {
	// Searching for 400 bytes costs four units per byte of the text.
	part := strings.Repeat("b", 400)
	schemaProps := parseSchema(t, `{"type":"object","properties":{
		"l":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"!self.contains('`+part+`')","message":"long"}]}},
		"m":{"type":"string","x-kubernetes-validations":[
			{"rule":"self != 'x' + self","messageExpression":"'%s'.format([self.contains('`+part+`')])"},
			{"rule":"self == 'y'","messageExpression":"'%s'.format([self.contains('`+part+`')])"}]}}}`)
	ruleSet := compiler.Compile(schemaProps, nil)
	text := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	const outOfBudget = "validation failed due to running out of cost budget, no further validation rules will be run"
	tests := map[string]string{
		// one call exceeds the limit of a call
		`{"l":[` + text(300_000) + `,"` + part + `"]}`: "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: long",
		// all calls together exceed the budget
		`{"l":` + list(text(200_000), 14) + `}`: outOfBudget,
		`{"m":` + text(300_000) + `}`:           `no further validation rules will be run due to call cost exceeds limit for messageExpression: "'%s'.format([self.contains('` + part + `')])"`,
	}
	for text, want := range tests {
		errs := evaluate(t, ruleSet, parseDoc(t, text))
		if len(errs) != 1 || errs[0].Detail != want {
			t.Errorf("%.20s: got %v\nwant %s", text, errs, want)
		}
	}
}

// TestCanceledRequestInterruptsRules checks that the rules of a canceled request end with one error.
func TestCanceledRequestInterruptsRules(t *testing.T) {
	ruleSet := compiler.Compile(parseSchema(t, `{"type":"object","properties":{
		"n":{"type":"array","items":{"type":"integer"},"x-kubernetes-validations":[{"rule":"self.all(x, x > 0)"}]}}}`), nil)
	numbers := "[" + strings.Repeat("1,", 999) + "1]"
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	errs := ruleSet.Evaluate(canceled, parseDoc(t, `{"n":`+numbers+`}`), nil, nil, nil)
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Detail, "operation interrupted evaluating rule") {
		t.Errorf("canceled context: got errors %v, want one interrupted rule", errs)
	}
}

// TestExpensiveRulesAreReported checks that rules that cost much are reported, also for short
// values.
func TestExpensiveRulesAreReported(t *testing.T) {
	schemaProps := parseSchema(t, `{"type":"object","properties":{"l":{"type":"array","items":{"type":"integer"},"x-kubernetes-validations":[
		{"rule":"self.all(x, self.all(y, x + y > 0))"},{"rule":"self.all(x, x > 0)"}]}}}`)
	ruleSet := compiler.Compile(schemaProps, nil)
	for values, want := range map[int]int{3: 0, 200: 1} { // wanted reports by number of values
		reports := 0
		doc := parseDoc(t, `{"l":[`+strings.TrimSuffix(strings.Repeat("1,", values), ",")+`]}`)
		errs := ruleSet.Evaluate(t.Context(), doc, nil, nil, func() { reports++ })
		if len(errs) > 0 {
			t.Errorf("%d values: got errors %v, want none", values, errs)
		}
		if reports != want {
			t.Errorf("%d values: got %d reports, want %d", values, reports, want)
		}
	}
}

// TestFieldsOfManyProperties checks that fields are looked up. A scan of all properties per field
// would take longer than the test's timeout.
func TestFieldsOfManyProperties(t *testing.T) {
	const many, items, times = 40_000, 100_000, 10
	var properties strings.Builder
	for i := range many {
		fmt.Fprintf(&properties, `"p%06d":{"type":"integer"},`, i)
	}
	rule := fmt.Sprintf(`{"rule":"self.l.all(x, self.p%06d > x || has(self.odd__dash__name))"},`, many-1)
	rules := strings.TrimSuffix(strings.Repeat(rule, times), ",")
	props := parseSchema(t, `{"type":"object","properties":{`+properties.String()+`
		"odd-name":{"type":"integer"},"l":{"type":"array","items":{"type":"integer"}}},"x-kubernetes-validations":[`+rules+`]}`)
	program, err := schema.Compile(props)
	if err != nil {
		t.Fatal(err)
	}
	ruleSet := compiler.Compile(props, program)
	list := `"l":[` + strings.Repeat("1,", items-1) + `1]`
	for text, want := range map[string]int{
		fmt.Sprintf(`{"p%06d":2,%s}`, many-1, list): 0,
		fmt.Sprintf(`{"p%06d":1,%s}`, many-1, list): times,
	} {
		if errs := evaluate(t, ruleSet, parseDoc(t, text)); len(errs) != want {
			t.Errorf("%.20s: got %d errors, want %d: %.300s", text, len(errs), want, fmt.Sprint(errs))
		}
	}
}

// TestCheckSchemaRejectsExpensiveRules checks that the estimated cost of a rule is limited, unless
// AllowExpensive is set.
func TestCheckSchemaRejectsExpensiveRules(t *testing.T) {
	// The error of an exceeded limit shows the cost. The factor refers to the limit of ten million.
	tests := map[string]string{
		`{"type":"array","maxItems":4000,"items":{"type":"integer"},"x-kubernetes-validations":[{"rule":"self.all(x, self.all(y, x == y))"}]}`:                             "8.0x",
		`{"type":"array","maxItems":2000,"items":{"type":"string","maxLength":50},"x-kubernetes-validations":[{"rule":"self.all(x, self.exists(y, x == y))"}]}`:            "10.4x",
		`{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self.contains('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')"}]}}`:                         "more than 100x",
		`{"type":"object","additionalProperties":{"type":"string"},"x-kubernetes-validations":[{"rule":"self.all(k, self[k].matches('a*b'))"}]}`:                           "more than 100x",
		`{"type":"object","maxProperties":10,"additionalProperties":{"type":"string","maxLength":10,"x-kubernetes-validations":[{"rule":"self.find('[a-z]+') == self"}]}}`: "",
		`{"type":"array","maxItems":-5,"items":{"type":"string","x-kubernetes-validations":[{"rule":"self.matches('a*b')"}]}}`:                                             "",
	}
	for text, want := range tests {
		props := parseSchema(t, `{"type":"object","properties":{"v":`+text+`}}`)
		errs := compiler.CheckSchema(rules.SchemaCheck{Schema: props, Path: field.NewPath("s")})
		if want == "" {
			if len(errs) > 0 {
				t.Errorf("%s: CheckSchema = %v, want no error", text, errs)
			}
			continue
		}
		if len(errs) == 0 || !strings.Contains(errs[0].Detail, want) {
			t.Errorf("%s: CheckSchema = %v, want an error with %q", text, errs, want)
		}
		for _, e := range compiler.CheckSchema(rules.SchemaCheck{Schema: props, Path: field.NewPath("s"), AllowExpensive: true}) {
			if strings.HasPrefix(e.Detail, "estimated") {
				t.Errorf("%s: CheckSchema with AllowExpensive = %v, want no error about the cost", text, e)
			}
		}
	}
}

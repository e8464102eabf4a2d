package policies_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestErrorTypeMetric checks that the metric has the type of an expression's error, or no_error.
func TestErrorTypeMetric(t *testing.T) {
	const many = 30
	variables, all := make([]string, many), make([]string, many)
	for i := range many {
		variables[i], all[i] = fmt.Sprintf(`{"name":"v%d","expression":"%s"}`, i, expensiveExpression), fmt.Sprint("variables.v", i)
	}
	tooDear := strings.Join(all, " && ")
	for _, c := range []struct{ name, validation, mutation, want, says string }{
		{name: "nothing", validation: "true", mutation: `Object{data: {'b': 'c'}}`, want: "no_error"},
		{name: "not an expression", validation: "object.", mutation: `Object{`, want: "compile_error", says: "compilation error: "},
		{
			name: "runtime error", validation: "object.data.nothing == ''",
			mutation: `Object{data: {'b': object.data.nothing}}`, want: "invalid_error",
			says: "no such key: nothing",
		},
		{name: "wrong type", mutation: `Object{data: {'a': 1}}`, want: "invalid_error", says: "expected string"},
		{
			name: "cost budget exceeded", validation: tooDear,
			mutation: `Object{data: {'b': ` + tooDear + ` ? 'c' : 'd'}}`, want: "out_of_budget",
			says: "validation failed due to running out of cost budget",
		},
	} {
		with := `"variables":[` + strings.Join(variables, ",") + `],`
		if c.validation != "" {
			f := newFixture(t, policy("p", with+`"validations":[{"expression":"`+c.validation+`"}]`), boundPolicy("p", deny))
			err := f.validating.Validate(t.Context(), f.configMap("a", "b"))
			if (err != nil) != (c.says != "") || !strings.Contains(statusText(err), c.says) {
				t.Errorf("%s: got error %v, want one that contains %q, or none if that is empty", c.name, err, c.says)
			}
			if got, want := f.errorTypes(), "apiserver_validating "+c.want; got != want {
				t.Errorf("%s: got error types %q, want %q", c.name, got, want)
			}
		}
		f := newFixture(
			t,
			mutatingPolicy("p", with+`"mutations":[`+applyConfigurationMutation(c.mutation)+`]`),
			mutatingBinding("p", ""),
		)
		err := f.mutating.Admit(t.Context(), f.configMap("a", "b"))
		if (err != nil) != (c.says != "") || !strings.Contains(statusText(err), c.says) {
			t.Errorf("%s: got error %v, want one that contains %q, or none if that is empty", c.name, err, c.says)
		}
		if got, want := f.errorTypes(), "apiserver_mutating "+c.want; got != want {
			t.Errorf("%s: got error types %q, want %q", c.name, got, want)
		}
	}
}

// errorTypes returns the counts of the metric by error type.
func (f *fixture) errorTypes() string {
	families, err := f.metrics.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	var found []string
	for _, family := range families {
		sort, ok := strings.CutSuffix(family.GetName(), "_admission_policy_check_total")
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if ok && l.GetName() == "error_type" {
					found = append(found, sort+" "+l.GetValue())
				}
			}
		}
	}
	return strings.Join(found, ", ")
}

package policies_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestMetricCountsErrorTypes checks that the metric has the type of an expression's error, or
// no_error.
func TestMetricCountsErrorTypes(t *testing.T) {
	const enoughToExceedBudget = 30
	var declarations, references []string
	for i := range enoughToExceedBudget {
		declarations = append(declarations, fmt.Sprintf(`{"name":"v%d","expression":"%s"}`, i, expensiveExpression))
		references = append(references, fmt.Sprint("variables.v", i))
	}
	variables := `"variables":[` + strings.Join(declarations, ",") + `],`
	tooExpensive := strings.Join(references, " && ")
	for _, test := range []struct {
		name                 string
		validation, mutation string // expressions; without a validation, only the mutation is tested
		want                 string // value of the label error_type
		wantErr              string // part of the error
	}{
		{name: "no error", validation: "true", mutation: `Object{data: {'b': 'c'}}`, want: "no_error"},
		{name: "not an expression", validation: "object.", mutation: `Object{`, want: "compile_error", wantErr: "compilation error: "},
		{
			name: "runtime error", validation: "object.data.nothing == ''",
			mutation: `Object{data: {'b': object.data.nothing}}`, want: "invalid_error",
			wantErr: "no such key: nothing",
		},
		{name: "wrong type", mutation: `Object{data: {'a': 1}}`, want: "invalid_error", wantErr: "expected string"},
		{
			name: "cost budget exceeded", validation: tooExpensive,
			mutation: `Object{data: {'b': ` + tooExpensive + ` ? 'c' : 'd'}}`, want: "out_of_budget",
			wantErr: "validation failed due to running out of cost budget",
		},
	} {
		if test.validation != "" {
			fixture := newFixture(t, validatingPolicy("p", variables+`"validations":[{"expression":"`+test.validation+`"}]`), validatingBinding("p", deny))
			err := fixture.validating.Validate(t.Context(), fixture.configMap("a", "b"))
			if !hasWantedError(statusText(err), test.wantErr) {
				t.Errorf("validation, %s: got error %v, want one that contains %q, or none if that is empty", test.name, err, test.wantErr)
			}
			if got, want := fixture.errorTypes(), "apiserver_validating "+test.want; got != want {
				t.Errorf("validation, %s: got error types %q, want %q", test.name, got, want)
			}
		}
		fixture := newFixture(
			t,
			mutatingPolicy("p", variables+`"mutations":[`+applyConfigurationMutation(test.mutation)+`]`),
			mutatingBinding("p", ""),
		)
		err := fixture.mutating.Admit(t.Context(), fixture.configMap("a", "b"))
		if !hasWantedError(statusText(err), test.wantErr) {
			t.Errorf("mutation, %s: got error %v, want one that contains %q, or none if that is empty", test.name, err, test.wantErr)
		}
		if got, want := fixture.errorTypes(), "apiserver_mutating "+test.want; got != want {
			t.Errorf("mutation, %s: got error types %q, want %q", test.name, got, want)
		}
	}
}

// errorTypes returns the error types that the metric counted, each after the prefix of its metric,
// such as "apiserver_validating no_error".
func (f *fixture) errorTypes() string {
	families, err := f.metrics.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	var found []string
	for _, family := range families {
		prefix, ok := strings.CutSuffix(family.GetName(), "_admission_policy_check_total")
		if !ok {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "error_type" {
					found = append(found, prefix+" "+l.GetValue())
				}
			}
		}
	}
	return strings.Join(found, ", ")
}

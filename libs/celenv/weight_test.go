package celenv_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"

	"binnacle/libs/celenv"
)

// repeatStep returns start followed by step n times.
func repeatStep(start, step string, count int) string { return start + strings.Repeat(step, count) }

// TestExpensiveExpressionsAreStopped checks that expressions whose cost grows with each step are
// stopped. Without limits each would take years, or all memory.
func TestExpensiveExpressionsAreStopped(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"object": cel.DynType})
	if err != nil {
		t.Fatal(err)
	}
	const many = 60
	nested, named := repeatStep("[dyn([1])]", ".map(a, dyn([a, a]))", many), repeatStep("[dyn([1])]",
		".map(a, dyn({'a': a, 'b': a}))", many)
	text := repeatStep("['x']", ".map(a, a + a)", 20) // a megabyte
	ones := repeatStep("[[1]]", ".map(a, a + a)", 10) // a list with a list of 1,024 numbers
	object := map[string]any{"object": map[string]any{"text": strings.Repeat("x", 1<<20)}}
	for name, expression := range map[string]string{
		"a list added to itself":             repeatStep("[[1]]", ".map(a, a + a)", many) + "[0].size() == 1",
		"elements of a list added to itself": repeatStep("[[1]]", ".map(a, a + a)", 19) + "[0].all(b, b == 1)",
		"a long list made longer": repeatStep("[[1]]", ".map(a, a + a)",
			18) + ".all(a, a.all(b, (a + [b]).size() > 0))",
		"lists compared":    nested + ".all(a, a == a)",
		"lists that differ": nested + ".all(a, a != a)",
		"maps compared":     named + ".all(a, a == a)",
		"optional values compared": repeatStep("[dyn([1])]",
			".map(a, dyn([optional.of(a), optional.of(a)]))", many) + ".all(a, a == a)",
		"a list in a list":                     nested + ".all(a, a in [a])",
		"the place of a list in a list":        nested + ".all(a, [a].indexOf(a) == 0)",
		"sets of lists":                        nested + ".all(a, sets.contains([a], [a]))",
		"a list as text":                       nested + ".all(a, '%s'.format([a]) == '')",
		"a text in itself":                     text + ".all(a, a.replace('x', a) == '')",
		"a text of the object in itself":       "object.text.replace('', object.text) == ''",
		"a text of the object added to itself": repeatStep("[object.text]", ".map(a, a + a)", many) + "[0] == ''",
		"bytes of the object added to itself":  repeatStep("[dyn(bytes(object.text))]", ".map(a, a + a)", many) + "[0] == b''",
		"characters joined by a text":          "object.text.split('').join(object.text) == ''",
		"a text joined with itself": text + ".all(a, " + repeatStep("[[a]]", ".map(b, b + b)",
			19) + "[0].join('') == '')",
		"a character of a text for each value": ones + "[0].all(a, object.text.charAt(a) == 'x')",
		"length of a text for each value":      ones + "[0].all(a, object.text.size() > a)",
		"text as bytes for each value":         ones + "[0].all(a, bytes(object.text) != b'')",
		"text as a number for each value":      ones + "[0].all(a, type(int(object.text)) != int || true)",
		"texts in order for each value":        ones + "[0].all(a, object.text <= object.text)",
		"lists of unknown types searched":      ones + ".map(a, dyn(a))[0].all(a, " + ones + ".map(b, dyn(b))[0].all(b, 2 in " + ones + ".map(c, dyn(c))[0] || true))",
		"errors that are passed over":          nested + ".exists(a, [1, 2, 3].exists(b, a == a))",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := env.Compile(expression)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Eval(t.Context(), object, nil); err == nil || !strings.Contains(err.Error(),
				"actual cost limit exceeded") {
				t.Errorf("error = %v, want the error: actual cost limit exceeded", err)
			}
		})
	}
	for name, expression := range map[string]string{
		"types":                repeatStep("[1]", ".map(a, {a: a})", many) + ".size() == 1",
		"types within one":     repeatStep("[1]", ".map(a, {{a: a}: {a: a}})", many) + ".size() == 1",
		"types of both":        "[1].all(x, " + repeatStep("[x]", ".map(a, {a: a})", many) + ".size() == 1)",
		"types of two as keys": repeatStep("{1: 1}", ".transformMap(k, v, {k: v, v: k})", many) + ".size() == 1",
	} {
		if _, err := env.Compile(expression); err == nil || !strings.Contains(err.Error(),
			"more than 6 maps with computed keys") {
			t.Errorf("%s: %v, want the error: more than 6 maps with computed keys", name, err)
		}
	}
}

// TestExpensiveCallsAreStopped checks that a call is stopped if it takes much more time or memory
// than its standard cost suggests.
func TestExpensiveCallsAreStopped(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"object": cel.DynType, "paths": cel.ListType(cel.StringType)})
	if err != nil {
		t.Fatal(err)
	}
	rows := func(last int64) []any {
		list := make([]any, 300)
		for i := range list {
			row := make([]int64, 1900)
			row[len(row)-1] = last * int64(i+1)
			list[i] = row
		}
		return list
	}
	path := "/" + strings.Repeat("x", 1<<20)
	values := map[string]any{
		"object": map[string]any{
			"rows": rows(1), "others": rows(-1), "ones": slices.Repeat([]int64{1}, 1024),
			"numbers": slices.Repeat([]float64{1.5}, 2500), "large": slices.Repeat([]float64{1e308}, 250_000),
			"wide": strings.Repeat("%.65535e", 2500), "long": strings.Repeat("%.65535f", 2500),
			"floats": strings.Repeat("%f", 250_000), "text": strings.Repeat("x", 1<<20),
			"many": slices.Repeat([]string{"x"}, 100_000),
			"more": slices.Repeat([]string{"y"}, 100_000),
		},
		"paths": []string{path, path + "?" + strings.Repeat("a=x&", 9000)},
	}
	for name, expression := range map[string]string{
		"a format with a wide column":        "[object.wide.format(object.numbers)].size() == 1",
		"a format with many decimals":        "[object.long.format(object.numbers)].size() == 1",
		"a constant format":                  "object.ones.all(a, '" + strings.Repeat("%.65535e", 20) + "'.format(object.numbers).size() > 0)",
		"a format of large numbers":          "'%s'.format([object.large]) == ''",
		"a format with many numbers":         "object.floats.format(object.large) == ''",
		"sets of long lists":                 "!sets.intersects(object.rows, object.others)",
		"sets of long lists that differ":     "!sets.contains(object.rows, object.others)",
		"equivalent sets of long lists":      "!sets.equivalent(object.rows, object.others)",
		"sets of many elements":              "!sets.intersects(object.many, object.more)",
		"a text as URL for each value":       "object.ones.all(a, isURL(paths[0]))",
		"a URL compared for each value":      "[url(paths[0])].all(u, object.ones.all(a, u == u))",
		"a path for each value":              "[url(paths[0])].all(u, object.ones.all(a, [u.getEscapedPath()].size() == 1))",
		"a query for each value":             "[url(paths[1])].all(u, object.ones.all(a, u.getQuery().size() > 0))",
		"a text as time zone for each value": "object.ones.all(a, timestamp('2020-01-01T00:00:00Z').getHours(object.text) == 0 || true)",
	} {
		t.Run(name, func(t *testing.T) {
			p, err := env.Compile(expression)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Eval(t.Context(), values, nil); err == nil || !strings.Contains(err.Error(),
				"actual cost limit exceeded") {
				t.Errorf("error = %v, want the error: actual cost limit exceeded", err)
			}
		})
	}
}

// TestUsualCallsCostAsInCEL checks that calls with values of usual size cost as much as CEL counts
// for them.
func TestUsualCallsCostAsInCEL(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"names": cel.ListType(cel.StringType)})
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 50)
	for i := range names {
		names[i] = fmt.Sprintf("https://example.com/path/%d?a=%d&b=c", i, i)
	}
	values := map[string]any{"names": names}
	for _, expression := range []string{
		"names.all(n, '%s: %.3f %e %d'.format([n, 1.5, 1e100, 3]) != '')", "'%s'.format([names]) != ''",
		"sets.contains(names, names) && sets.intersects(names, names) && sets.equivalent(names, names)",
		"sets.contains([[1, 2], [3]], [[3]])",
		"names.all(n, isURL(n) && url(n) == url(n) && url(n).getQuery().size() == 2 && url(n).getEscapedPath() != '')",
		"names.all(n, n.indexOf('example') == 8 && n.lastIndexOf('/') > 8)",
		"names.all(n, timestamp('2020-01-01T00:00:00Z').getHours('+01:00') == 1)",
	} {
		checked, issues := env.Check(expression)
		if err := issues.Err(); err != nil {
			t.Fatal(err)
		}
		native, err := celenv.Native(env, checked)
		if err != nil {
			t.Fatal(err)
		}
		want, details, err := native.Eval(values)
		if err != nil || want != types.True {
			t.Fatalf("%s: %v, %v, want true", expression, want, err)
		}
		runner, err := env.Runner(checked)
		if err != nil {
			t.Fatal(err)
		}
		variables, err := interpreter.NewActivation(values)
		if err != nil {
			t.Fatal(err)
		}
		_, cost, err := runner.Run(t.Context(), variables)
		if wantCost := details.ActualCost(); err != nil || wantCost == nil || cost != *wantCost {
			t.Errorf("%s: cost %d, %v, want %d", expression, cost, err, *wantCost)
		}
	}
}

// TestLargeObjectsAreComparedWithinBudget checks that objects are compared at the cost in
// Kubernetes.
func TestLargeObjectsAreComparedWithinBudget(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"object": cel.DynType, "old": cel.DynType})
	if err != nil {
		t.Fatal(err)
	}
	large := func() map[string]any {
		items := make([]any, 1000)
		for i := range items {
			items[i] = map[string]any{"name": strings.Repeat("n", i%50), "value": int64(i), "labels": map[string]any{"a": "b"}}
		}
		return map[string]any{"items": items, "text": strings.Repeat("x", 1<<20)}
	}
	values := map[string]any{"object": large(), "old": large()}
	for _, expression := range []string{
		"object == old", "object.items.filter(i, i.value < 50).all(i, i in old.items)", "object.text == old.text",
		"object.text.replace('x', 'yy').size() == 2097152",
		"object.items.map(i, i.name).join(',').size() > 1000", "{object.text: 1, old.items[3].name: 3}.size() == 2",
	} {
		p, err := env.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := p.Bool(t.Context(), values, celenv.NewBudget(10_000_000)); !ok || err != nil {
			t.Errorf("%s: %t, %v, want true, no error", expression, ok, err)
		}
	}
}

// TestExpressionsWithManyGenericPartsAreRejected checks expressions whose type check takes time
// proportional to the square of their length: 100 KB, the longest expression, took ten minutes.
func TestExpressionsWithManyGenericPartsAreRejected(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"x": cel.DynType, "s": cel.ListType(cel.StringType)})
	if err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string]string{
		"comparisons": "x == x", "additions": "x + x", "empty lists": "[]", "empty maps": "{}",
		"indexes": "x[0]", "conditions": "x ? x : x", "macros": "s.all(e, e == '')", "functions": "s.size()",
	} {
		expression := func(n int) string { return "[" + strings.Repeat(part+", ", n) + part + "].size() > 0" }
		if _, issues := env.Check(expression(20)); issues.Err() != nil {
			t.Errorf("%s: %v, want nil", name, issues.Err())
		}
		if _, issues := env.Check(expression(4000)); issues.Err() == nil || !strings.Contains(issues.Err().Error(),
			"too many operators") {
			t.Errorf("%s: got %.200v, want an error about too many operators", name, issues.Err())
		}
	}
}

// TestExpressionsOfOneObjectAreLimited checks that an object cannot have any number of expressions
// that are each within the limits, and that the limit of one object does not affect others.
func TestExpressionsOfOneObjectAreLimited(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"x": cel.DynType})
	if err != nil {
		t.Fatal(err)
	}
	limited := env.Within(&celenv.CheckBudget{})
	checkedCount := 0
	for ; checkedCount < 1000; checkedCount++ {
		expression := fmt.Sprintf("[%sx == %d].size() > 0", strings.Repeat("x == x, ", 200), checkedCount)
		if _, issues := limited.Check(expression); issues.Err() != nil {
			if !strings.Contains(issues.Err().Error(), "too many expressions") {
				t.Fatal(issues.Err())
			}
			break
		}
	}
	if checkedCount < 20 || checkedCount == 1000 {
		t.Errorf("got %d checked expressions, want from 20 to 999", checkedCount)
	}
	if _, issues := limited.Check("x == x"); issues.Err() == nil {
		t.Error("Check(\"x == x\") beyond the limit = no issues, want an error")
	}
	if _, issues := env.Within(&celenv.CheckBudget{}).Check("x == x"); issues.Err() != nil {
		t.Errorf("another object: %v, want nil", issues.Err())
	}
}

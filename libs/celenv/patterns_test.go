package celenv_test

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

// patternVariables returns the environment and the values of expressions over texts and patterns.
func patternVariables(t *testing.T) (*celenv.Env, map[string]any) {
	t.Helper()
	env, err := celenv.New(map[string]*cel.Type{"object": cel.DynType})
	if err != nil {
		t.Fatal(err)
	}
	return env, map[string]any{"object": map[string]any{
		"text":    strings.Repeat("x", 1<<20),
		"name":    strings.Repeat("web.", 60) + "example",
		"long":    strings.Repeat("web.", 1000),
		"names":   strings.Split(strings.Repeat("web-1,", 1000)+"web", ","),
		"pattern": strings.Repeat("x{1000}", 3000),
		"folded":  strings.Repeat(`(?i:[B-\x{1e942}])`, 1000),
		"classes": strings.Repeat(`[\pL\pN]`, 5000),
		"bytes":   strings.Repeat("()", 100_000),
	}}
}

// TestExpensivePatternsAreStopped checks that a match is charged for the instructions of its
// pattern before it begins. Each expression takes from seconds to hours without that.
func TestExpensivePatternsAreStopped(t *testing.T) {
	env, values := patternVariables(t)
	for name, expression := range map[string]string{
		"repetitions in a constant":           `object.text.matches("(x?){1000}y")`,
		"nested repetitions in a constant":    `object.text.matches("((x?){30}){30}y")`,
		"global call":                         `matches(object.text, "((x?){30}){30}y")`,
		"find":                                `object.text.find("(x?){1000}y") == ""`,
		"findAll":                             `object.text.findAll("(x?){1000}y").size() == 0`,
		"findAll with a limit":                `object.text.findAll("(x?){1000}y", 1).size() == 0`,
		"findAll that searches the rest":      `object.text.findAll("x.*y|x").size() == 0`,
		"findAll of many texts":               `object.names.all(n, object.long.findAll("[a-z]+").size() == 1000)`,
		"compilation of a variable pattern":   `"a".matches(object.pattern)`,
		"compilation by find":                 `"a".find(object.pattern) == ""`,
		"compilation of a long constant":      `"a".matches("` + strings.Repeat("x{1000}", 3000) + `")`,
		"parsing of many ranges without case": `"a".matches(object.folded) || true`,
		"parsing of Unicode classes":          `"a".matches(object.classes) || true`,
		"parsing of a long pattern":           `object.names.all(n, n.matches(object.bytes))`,
		"parsing of a range without case":     `object.names.all(n, n.matches("(?i)[B-\\x{1e942}]"))`,
		"parsing by find":                     `object.names.all(n, n.find("(?i)[B-\\x{1e942}]") != "")`,
		"pattern with a computed part":        `["a", "b"].exists(s, object.text.matches("(x?){1000}" + s))`,
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

// TestUsualPatternsMatchWithinLimits checks that usual patterns are evaluated within the limits,
// also those that are compiled for each call.
func TestUsualPatternsMatchWithinLimits(t *testing.T) {
	env, values := patternVariables(t)
	for _, expression := range []string{
		`object.name.matches("^[a-z]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z]([-a-z0-9]{0,61}[a-z0-9])?)*$")`,
		`object.names.all(n, n.matches("^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"))`,
		`object.names.all(n, n.matches("^" + n + "$"))`,
		`object.names.all(n, n.find("[a-z]+") == "web")`,
		`object.name.findAll("[a-z]+").size() == 61`,
		`object.name.findAll("[a-z]+", 2).size() == 2 && object.name.findAll("[a-z]+", 0).size() == 0`,
		`object.long.findAll("[a-z]+").size() == 1000`,
		`object.names.all(n, n.matches("(?i)^[a-zà-ÿ]+[-\\pN]*$"))`,
		`object.names.filter(n, n == "web").all(n, n.matches("(?i)[B-\\x{1e942}]"))`,
		`object.name.matches("^.{1,1000}$") && object.name.matches("^([a-z.]{1,50}){1,20}$")`,
	} {
		p, err := env.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := p.Bool(t.Context(), values, nil); !ok || err != nil {
			t.Errorf("%s: %t, %v, want true, no error", expression, ok, err)
		}
	}
}

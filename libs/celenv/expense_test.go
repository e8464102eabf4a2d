package celenv_test

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"

	"binnacle/libs/celenv"
)

// TestCostSumReportsExcessOnce checks that costly is called once, during the expression that
// exceeds the budget, and that results do not change.
func TestCostSumReportsExcessOnce(t *testing.T) {
	const bound = 20_000
	env := userEnv(t)
	compile := func(expression string) *celenv.Program {
		p, err := env.Compile(expression, cel.BoolType)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	cheap, expensive := compile(`claims.list.all(a, a >= 0)`), compile(`claims.list.all(a, claims.list.all(b, a + b >= 0)) && user.username == "ada"`)
	list := make([]any, 300)
	for i := range list {
		list[i] = int64(i)
	}
	values := variables()
	values["claims"] = map[string]any{"list": list}
	calls := 0
	ctx := celenv.NewCostSum(bound, func() { calls++ }).NewContext(t.Context())
	evaluate := func(p *celenv.Program) {
		if ok, err := p.Bool(ctx, values, nil); err != nil || !ok {
			t.Fatalf("got %v, %v, want true", ok, err)
		}
	}
	evaluations := 0
	for ; calls == 0 && evaluations < 100; evaluations++ {
		evaluate(cheap)
	}
	if evaluations < 5 || evaluations > 50 {
		t.Errorf("costly was called after %d evaluations, want 5 to 50", evaluations)
	}
	evaluate(expensive)
	if calls != 1 {
		t.Errorf("costly was called %d times, want 1", calls)
	}

	// A single expensive expression calls costly before it ends.
	calls = 0
	ctx = celenv.NewCostSum(bound, func() { calls++ }).NewContext(t.Context())
	values["user"] = func() any { // evaluated last
		if calls != 1 {
			t.Errorf("costly was called %d times before the end, want 1", calls)
		}
		return map[string]any{"username": "ada"}
	}
	evaluate(expensive)
	if calls != 1 {
		t.Errorf("costly was called %d times, want 1", calls)
	}
}

// TestLibraryCallsCostOneWithStandardCosts checks that library functions cost 1 with standard
// costs, and that CEL's own functions have their usual costs.
func TestLibraryCallsCostOneWithStandardCosts(t *testing.T) {
	base, err := celenv.NewBaseEnv()
	if err != nil {
		t.Fatal(err)
	}
	costOf := func(b *celenv.BaseEnv, expression string) uint64 {
		env, err := b.Extend(map[string]*cel.Type{"text": cel.StringType}, nil)
		if err != nil {
			t.Fatal(err)
		}
		checked, issues := env.Check(expression)
		if err := issues.Err(); err != nil {
			t.Fatal(err)
		}
		runner, err := env.Runner(checked)
		if err != nil {
			t.Fatal(err)
		}
		variables, err := interpreter.NewActivation(map[string]any{"text": strings.Repeat("a", 100)})
		if err != nil {
			t.Fatal(err)
		}
		_, costOf, err := runner.Run(t.Context(), variables)
		if err != nil {
			t.Fatal(err)
		}
		return costOf
	}
	lenient := base.WithStandardCosts()
	if strict, standard := costOf(base, `text.upperAscii()`), costOf(lenient, `text.upperAscii()`); strict != 11 || standard != 2 {
		t.Errorf("upperAscii costs %d and %d, want 11 and 2", strict, standard)
	}
	if strict, standard := costOf(base, `text.contains("a")`), costOf(lenient, `text.contains("a")`); strict != standard {
		t.Errorf("contains costs %d and %d, want %v", strict, standard, standard)
	}
}

package celenv_test

import (
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

// TestExpense: that expressions are costly together is told once, in the middle of the one that
// makes them so, and changes nothing of what they come to.
func TestExpense(t *testing.T) {
	const bound = 20_000
	env := userEnv(t)
	compile := func(expression string) *celenv.Program {
		p, err := env.Compile(expression, cel.BoolType)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	few, many := compile(`claims.list.all(a, a >= 0)`), compile(`claims.list.all(a, claims.list.all(b, a + b >= 0)) && user.username == "ada"`)
	list := make([]any, 300)
	for i := range list {
		list[i] = int64(i)
	}
	values := variables()
	values["claims"] = map[string]any{"list": list}
	told := 0
	ctx := celenv.NewExpense(bound, func() { told++ }).With(t.Context())
	run := func(p *celenv.Program) {
		if ok, err := p.Bool(ctx, values, nil); err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
	}
	times := 0
	for ; told == 0 && times < 100; times++ {
		run(few)
	}
	if times < 5 || times > 50 {
		t.Errorf("told after %d times", times)
	}
	if run(many); told != 1 {
		t.Errorf("told %d times", told)
	}

	// Of one that is costly by itself it is told before it ends.
	told = 0
	ctx = celenv.NewExpense(bound, func() { told++ }).With(t.Context())
	values["user"] = func() any { // is looked at last
		if told != 1 {
			t.Errorf("told %d times before the end", told)
		}
		return map[string]any{"username": "ada"}
	}
	if run(many); told != 1 {
		t.Errorf("told %d times", told)
	}
}

package celenv_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

func userEnv(t testing.TB) *celenv.Env {
	t.Helper()
	user := celenv.Struct{Name: "test.User", Fields: map[string]*cel.Type{
		"username": cel.StringType,
		"groups":   cel.ListType(cel.StringType),
	}}
	env, err := celenv.New(map[string]*cel.Type{
		"user":   user.Type(),
		"claims": cel.MapType(cel.StringType, cel.DynType),
	}, user)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func variables() map[string]any {
	return map[string]any{
		"user":   map[string]any{"username": "ada", "groups": []string{"dev", "ops"}},
		"claims": map[string]any{"n": int64(3), "list": []any{"a", "b"}, "email": "a@b.c"},
	}
}

// TestExpressionsOverPlainValues evaluates expressions over plain values.
func TestExpressionsOverPlainValues(t *testing.T) {
	tests := []struct {
		expression string
		want       any // a value, or an error whose text the result must contain
	}{
		{expression: `user.username == "ada"`, want: true},
		{expression: `"ops" in user.groups`, want: true},
		{expression: `has(user.username)`, want: true},
		{expression: `has(claims.absent)`, want: false},
		{expression: `claims.?absent.orValue("x") == "x"`, want: true},
		{expression: `claims.absent == "x"`, want: errors.New("no such key")},
		{expression: `claims.n > 2.5`, want: true},
		{expression: `claims.list.exists(e, e == "b")`, want: true},
		{expression: `user.username.upperAscii() == "ADA"`, want: true},
		{expression: `sets.contains(user.groups, ["dev"])`, want: true},
		{expression: `claims.email.find("[a-z]@[a-z]") == "a@b"`, want: true},
		{expression: `"a1b22".findAll("[0-9]+") == ["1", "22"]`, want: true},
		{expression: `"a1b22".findAll("[0-9]+", 1) == ["1"]`, want: true},
		{expression: `"x".find(claims.email + "(") == "x"`, want: errors.New("illegal regular expression")},
		{expression: `[1, 2, 2].isSorted() && ![2, 1].isSorted()`, want: true},
		{expression: `[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3 && [3, 1].sum() == 4`, want: true},
		{expression: `[1.5].filter(x, x > 2.0).sum() == 0.0`, want: true},
		{expression: `[duration("1s"), duration("2s")].sum() == duration("3s")`, want: true},
		{expression: `[1].filter(x, x > 2).min() == 1`, want: errors.New("min called on empty list")},
		{
			expression: `["a", "b", "a"].indexOf("a") == 0 && ["a", "b", "a"].lastIndexOf("a") == 2 && ["a"].indexOf("c") == -1`,
			want:       true,
		},
		{expression: `timestamp("2020-01-01T00:00:00Z").getHours() == 0`, want: true},
		{expression: `claims.list.exists(a, claims.n)`, want: errors.New("no such overload")},
	}
	env := userEnv(t)
	for _, tt := range tests {
		t.Run(tt.expression, func(t *testing.T) {
			p, err := env.Compile(tt.expression, cel.BoolType)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Bool(t.Context(), variables(), nil)
			if wantErr, ok := tt.want.(error); ok {
				if err == nil || !strings.Contains(err.Error(), wantErr.Error()) {
					t.Fatalf("got %v, %v, want %q", got, err, wantErr)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestCompileRejectsInvalidExpressions checks the errors for expressions that do not compile or
// have another type.
func TestCompileRejectsInvalidExpressions(t *testing.T) {
	tests := []struct {
		expression string
		types      []*cel.Type
		wantErr    string
	}{
		{expression: `user.name`, types: nil, wantErr: "undefined field 'name'"},
		{expression: `unknown.name`, types: nil, wantErr: "undeclared reference to 'unknown'"},
		{expression: `user.`, types: nil, wantErr: "Syntax error"},
		{expression: `user.username`, types: []*cel.Type{cel.BoolType}, wantErr: "must evaluate to bool, not string"},
		{expression: `claims.n`, types: []*cel.Type{cel.BoolType}, wantErr: "must evaluate to bool, not dyn"},
		{
			expression: `1`,
			types:      []*cel.Type{cel.StringType, cel.ListType(cel.StringType)},
			wantErr:    "must evaluate to string or list(string), not int",
		},
		{expression: `"a".matches("(")`, types: nil, wantErr: "invalid matches argument"},
		{expression: `[1, "a"]`, types: nil, wantErr: "expected type 'int' but found 'string'"},
		{expression: strings.Repeat("[", 1000), types: nil, wantErr: "compilation failed"},
	}
	env := userEnv(t)
	for _, tt := range tests {
		t.Run(tt.expression, func(t *testing.T) {
			if _, err := env.Compile(tt.expression, tt.types...); err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("got %v, want %q", err, tt.wantErr)
			}
		})
	}
}

// expensiveExpression is expensive but fast: it searches a long text.
const expensiveExpression = `claims.text.contains(claims.part)`

func longVariables() map[string]any {
	return map[string]any{"claims": map[string]any{"text": strings.Repeat("a", 100_000), "part": strings.Repeat("b", 20_000)}}
}

// TestEvalStopsAtCostLimitAndWithContext checks that an evaluation ends at its cost limit and with
// its context.
func TestEvalStopsAtCostLimitAndWithContext(t *testing.T) {
	env := userEnv(t)
	p, err := env.Compile(expensiveExpression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Eval(t.Context(), longVariables(), nil); err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
		t.Errorf("expensive expression: %v, want the error: cost limit exceeded", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	loop, err := env.Compile(`claims.many.all(e, e >= 0)`)
	if err != nil {
		t.Fatal(err)
	}
	many := map[string]any{"claims": map[string]any{"many": make([]int64, 1000)}}
	if _, err := loop.Eval(ctx, many, nil); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("cancelled: %v, want the error: interrupted", err)
	}
	pattern, err := env.Compile(`claims.text.find(claims.part) == ""`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pattern.Eval(t.Context(), longVariables(), nil); err == nil || !strings.Contains(err.Error(),
		"cost limit exceeded") {
		t.Errorf("long pattern on long text: %v, want the error: cost limit exceeded", err)
	}
}

// TestEvaluationsExhaustSharedBudget checks that several evaluations together exhaust a Budget.
func TestEvaluationsExhaustSharedBudget(t *testing.T) {
	program, err := userEnv(t).Compile(`claims.list.exists(e, e == "b")`)
	if err != nil {
		t.Fatal(err)
	}
	budget := celenv.NewBudget(20)
	if _, err := program.Bool(t.Context(), variables(), budget); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		_, err = program.Bool(t.Context(), variables(), budget)
		if err != nil {
			break
		}
	}
	if !errors.Is(err, celenv.ErrBudget) {
		t.Errorf("got %v, want error %v", err, celenv.ErrBudget)
	}
}

// TestReadsFieldDetectsReadsButNotPresenceTests checks which expressions count as reading
// claims.email.
func TestReadsFieldDetectsReadsButNotPresenceTests(t *testing.T) {
	tests := map[string]bool{
		`claims.email`:                                   true,
		`claims.?email.orValue("")`:                      true,
		`claims["email"]`:                                true,
		`claims[?"email"].orValue("")`:                   true,
		`[1].all(x, claims.email == "x")`:                true,
		`claims.email.startsWith("a") ? "a" : "b"`:       true,
		`has(claims.email)`:                              false,
		`claims.emails`:                                  false,
		`claims.other.email`:                             false,
		`[{"email": "x"}].map(c, c.email)`:               false,
		`"claims.email"`:                                 false,
		`has(claims.email) ? claims.email : claims.name`: true,
	}
	env := userEnv(t)
	for expression, want := range tests {
		p, err := env.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.ReadsField("claims", "email"); got != want {
			t.Errorf("%s: %v, want %v", expression, got, want)
		}
	}
}

// FuzzCompileAndEval checks that an evaluation returns either a value or an error.
func FuzzCompileAndEval(f *testing.F) {
	for _, s := range []string{`user.username == "ada"`, `claims.?a.orValue([1]).exists(x, x > 1)`,
		`"a".findAll("[")`, `[1,2].sum()`, expensiveExpression} {
		f.Add(s)
	}
	env := userEnv(f)
	f.Fuzz(func(t *testing.T, expression string) {
		p, err := env.Compile(expression)
		if err != nil {
			return
		}
		out, err := p.Eval(t.Context(), variables(), nil)
		if (out == nil) == (err == nil) {
			t.Errorf("got %v, %v, want either a value or an error", out, err)
		}
	})
}

// BenchmarkEval measures the evaluation of a short expression.
func BenchmarkEval(b *testing.B) {
	program, err := userEnv(b).Compile(`user.username.startsWith("system:")`, cel.BoolType)
	if err != nil {
		b.Fatal(err)
	}
	v := variables()
	for b.Loop() {
		if _, err := program.Bool(b.Context(), v, nil); err != nil {
			b.Fatal(err)
		}
	}
}

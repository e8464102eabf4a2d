package celenv_test

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"binnacle/libs/celenv"
)

// TestTextSearchMatchesCEL compares the results and errors of indexOf and lastIndexOf with those of
// CEL itself.
func TestTextSearchMatchesCEL(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{
		"text": cel.StringType, "part": cel.StringType, "offset": cel.IntType, "unknown": cel.DynType,
	})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"", "a", "aa", "aaab", "abaabab", "äöäöü", "日本語日本", "aä", "a\xffb\xff", "\ufffd", "x\u00e4"}
	parts := []string{"", "a", "aa", "ab", "aba", "b", "ä", "öä", "日本", "本語", "aaaaaaaaaa", "\ufffd", "\xff", "\xa4"}
	for _, expression := range []string{
		"text.indexOf(part)", "text.lastIndexOf(part)", "text.indexOf(part, offset)", "text.lastIndexOf(part, offset)",
		"dyn(text).indexOf(dyn(part))", "dyn(text).lastIndexOf(dyn(part), dyn(offset))",
		"unknown.indexOf(part)", "unknown.lastIndexOf(part, offset)", "text.indexOf(unknown)",
		"text.indexOf(part, unknown)",
	} {
		checked, issues := env.Check(expression)
		if err := issues.Err(); err != nil {
			t.Fatal(err)
		}
		native, err := celenv.Native(env, checked)
		if err != nil {
			t.Fatal(err)
		}
		p, err := env.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			for _, part := range parts {
				for offset := int64(-2); offset < 9; offset++ {
					for _, unknown := range []any{text, int64(1), []string{"b", part}} {
						values := map[string]any{"text": text, "part": part, "offset": offset, "unknown": unknown}
						got, gotErr := p.Eval(t.Context(), values, nil)
						want, _, wantErr := native.Eval(values)
						switch {
						case (gotErr == nil) != (wantErr == nil):
							t.Fatalf("%s with %q: %v, %v, want %v, %v", expression, values, got, gotErr, want, wantErr)
						case wantErr != nil && !strings.Contains(gotErr.Error(), wantErr.Error()):
							t.Fatalf("%s with %q: error %v, want %v", expression, values, gotErr, wantErr)
						case wantErr == nil && got.Equal(want) != types.True:
							t.Fatalf("%s with %q: %v, want %v", expression, values, got, want)
						}
					}
				}
			}
		}
	}
}

// TestLongTextsAreSearchedInLinearTime searches for texts that repeat their beginning. Comparing
// them at each position takes minutes.
func TestLongTextsAreSearchedInLinearTime(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"text": cel.StringType, "part": cel.StringType})
	if err != nil {
		t.Fatal(err)
	}
	run := strings.Repeat("a", 1_000_000)
	for expression, part := range map[string]string{
		"text.indexOf(part) == -1":             run[:500_000] + "b",
		"text.indexOf(part, 1) == -1":          run[:500_000] + "b",
		"text.lastIndexOf(part) == -1":         "b" + run[:500_000],
		"text.lastIndexOf(part, 999999) == -1": "b" + run[:500_000],
		"dyn(text).indexOf(part) == -1":        run[:500_000] + "b",
		"dyn(text).lastIndexOf(part) == -1":    "b" + run[:500_000],
		"text.lastIndexOf(part) == 500000":     run[:500_000],
	} {
		p, err := env.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]any{"text": run, "part": part}
		if ok, err := p.Bool(t.Context(), values, celenv.NewBudget(1_000_000)); !ok || err != nil {
			t.Errorf("%s: %t, %v, want true, no error", expression, ok, err)
		}
	}
}

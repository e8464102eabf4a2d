package expressions_test

import (
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// TestProgramsAreShared: equal expressions share a program if everything that they depend on is
// equal.
func TestProgramsAreShared(t *testing.T) {
	c, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	programs := expressions.NewPrograms(c)
	compiled := func(sees expressions.Sees, variable, expression string, want *cel.Type) *celenv.Program {
		t.Helper()
		s := programs.Scope()
		if variable != "" {
			if _, err := s.Declare(expressions.Sees{}, "v", variable); err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.Compile(sees, expression, want)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const text = "has(object.a)"
	first := compiled(expressions.Sees{}, "", text, cel.BoolType)
	if compiled(expressions.Sees{}, "", text, cel.BoolType) != first {
		t.Error("equal expressions do not share a program")
	}
	if compiled(expressions.Sees{Params: true}, "", text, cel.BoolType) == first {
		t.Error("expressions with other visible variables share a program")
	}
	number := compiled(expressions.Sees{}, "1", "dyn(variables.v) == 'x'", cel.BoolType)
	if compiled(expressions.Sees{}, "2", "dyn(variables.v) == 'x'", cel.BoolType) != number {
		t.Error("variables of one type do not share a program")
	}
	if compiled(expressions.Sees{}, "'x'", "dyn(variables.v) == 'x'", cel.BoolType) == number {
		t.Error("variables of other types share a program")
	}
}

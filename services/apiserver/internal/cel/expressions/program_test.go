package expressions_test

import (
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// TestProgramsAreShared checks that equal expressions share a program if everything that they
// depend on is equal.
func TestProgramsAreShared(t *testing.T) {
	c, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	programs := expressions.NewPrograms(c)
	compiled := func(visible expressions.VariableSet, variable, expression string, want *cel.Type) *celenv.Program {
		t.Helper()
		s := programs.Scope()
		if variable != "" {
			if _, err := s.Declare(expressions.VariableSet{}, "v", variable); err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.Compile(visible, expression, want)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const text = "has(object.a)"
	first := compiled(expressions.VariableSet{}, "", text, cel.BoolType)
	if compiled(expressions.VariableSet{}, "", text, cel.BoolType) != first {
		t.Error("equal expressions do not share a program")
	}
	if compiled(expressions.VariableSet{Params: true}, "", text, cel.BoolType) == first {
		t.Error("expressions with other visible variables share a program")
	}
	number := compiled(expressions.VariableSet{}, "1", "dyn(variables.v) == 'x'", cel.BoolType)
	if compiled(expressions.VariableSet{}, "2", "dyn(variables.v) == 'x'", cel.BoolType) != number {
		t.Error("variables of one type do not share a program")
	}
	if compiled(expressions.VariableSet{}, "'x'", "dyn(variables.v) == 'x'", cel.BoolType) == number {
		t.Error("variables of other types share a program")
	}
}

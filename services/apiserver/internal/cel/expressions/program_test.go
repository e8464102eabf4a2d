package expressions_test

import (
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// TestEqualExpressionsShareProgram checks that equal expressions share a program if everything that they
// depend on is equal.
func TestEqualExpressionsShareProgram(t *testing.T) {
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	programs := expressions.NewPrograms(compiler)
	// compiled returns the program of an expression after the declaration of the variable v, unless
	// variable is empty.
	compiled := func(visible expressions.VariableSet, variable, expression string, want *cel.Type) *celenv.Program {
		t.Helper()
		scope := programs.Scope()
		if variable != "" {
			if _, err := scope.Declare(expressions.VariableSet{}, "v", variable); err != nil {
				t.Fatal(err)
			}
		}
		program, err := scope.Compile(visible, expression, want)
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	const noVariable, text = "", "has(object.a)"
	first := compiled(expressions.VariableSet{}, noVariable, text, cel.BoolType)
	if compiled(expressions.VariableSet{}, noVariable, text, cel.BoolType) != first {
		t.Error("equal expressions: got two programs, want one")
	}
	if compiled(expressions.VariableSet{Params: true}, noVariable, text, cel.BoolType) == first {
		t.Error("expressions with other visible variables: got one program, want two")
	}
	number := compiled(expressions.VariableSet{}, "1", "dyn(variables.v) == 'x'", cel.BoolType)
	if compiled(expressions.VariableSet{}, "2", "dyn(variables.v) == 'x'", cel.BoolType) != number {
		t.Error("expressions with a variable of the same type: got two programs, want one")
	}
	if compiled(expressions.VariableSet{}, "'x'", "dyn(variables.v) == 'x'", cel.BoolType) == number {
		t.Error("expressions with a variable of another type: got one program, want two")
	}
}

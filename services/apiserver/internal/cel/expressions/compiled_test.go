package expressions_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// expectError fails the test unless err contains want, or is nil if want is empty.
func expectError(t *testing.T, call string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s = %v, want nil", call, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s = %v, want an error that contains %q", call, err, want)
	}
}

// TestCompileRejectsWrongType checks that Compile returns a program only for a valid expression of the
// expected type.
func TestCompileRejectsWrongType(t *testing.T) {
	compiler := newCompiler(t)
	for expression, wantErr := range map[string]string{
		"true":          "",
		"1":             "must evaluate to bool but got int",
		"1 +":           "compilation failed",
		"params.a == 1": "undeclared reference",
	} {
		program, err := compiler.Compile(expressions.VariableSet{}, expression, cel.BoolType)
		expectError(t, "Compile("+expression+")", err, wantErr)
		if hasProgram := program != nil; hasProgram != (wantErr == "") {
			t.Errorf("Compile(%s): has a program: got %t, want %t", expression, hasProgram, wantErr == "")
		}
	}
}

// TestJSONPatchRequiresPatches checks that an expression can use JSONPatch only if patches are visible.
func TestJSONPatchRequiresPatches(t *testing.T) {
	for name, test := range map[string]struct {
		visible expressions.VariableSet
		wantErr string
	}{
		"with patches":    {visible: expressions.VariableSet{Patches: true}, wantErr: ""},
		"without patches": {visible: expressions.VariableSet{}, wantErr: "compilation failed"},
	} {
		err := newCompiler(t).Check(test.visible, "[JSONPatch{op: 'remove', path: '/a'}]", cel.ListType(celenv.JSONPatchType))
		expectError(t, "Check of a JSONPatch "+name, err, test.wantErr)
	}
}

// TestUnsetVariablesHaveNoValue checks that only variables that are set have values.
func TestUnsetVariablesHaveNoValue(t *testing.T) {
	unset := (&expressions.Input{}).Values()
	for _, name := range []string{"authorizer", "authorizer.requestResource", "variables"} {
		if value, ok := unset[name]; ok {
			t.Errorf("Values() of an empty input: %s = %v, want no value", name, value)
		}
	}
	set := (&expressions.Input{Authorizer: types.True, RequestResource: types.False, Variables: types.True}).Values()
	for name, want := range map[string]any{
		"authorizer":                 types.True,
		"authorizer.requestResource": types.False,
		"variables":                  types.True,
	} {
		if got := set[name]; got != want {
			t.Errorf("Values() of an input with all variables: %s = %v, want %v", name, got, want)
		}
	}
}

// TestVariableIsVisibleAfterItsDeclaration checks that an expression can use a variable only after its
// declaration, and only with its type.
func TestVariableIsVisibleAfterItsDeclaration(t *testing.T) {
	scope := expressions.NewPrograms(newCompiler(t)).Scope()
	if _, err := scope.Declare(expressions.VariableSet{}, "number", "1"); err != nil {
		t.Fatal(err)
	}
	for expression, wantErr := range map[string]string{
		"variables.number == 2":       "",
		"variables.number == 'x'":     "no matching overload",
		"variables.undeclared == 'x'": "undefined field 'undeclared'",
	} {
		_, err := scope.Compile(expressions.VariableSet{}, expression, cel.BoolType)
		expectError(t, "Compile("+expression+")", err, wantErr)
	}
}

// TestInvalidVariableFailsOnlyWhenEvaluated checks that an expression that uses an invalid variable
// compiles, because the variable has the dynamic type. The evaluation of the variable returns the error.
func TestInvalidVariableFailsOnlyWhenEvaluated(t *testing.T) {
	// 1. The declarations of a valid and an invalid variable.
	scope := expressions.NewPrograms(newCompiler(t)).Scope()
	if _, err := scope.Declare(expressions.VariableSet{}, "number", "1"); err != nil {
		t.Fatal(err)
	}
	_, err := scope.Declare(expressions.VariableSet{}, "invalid", "1 +")
	expectError(t, "Declare(invalid)", err, "compilation failed")
	// 2. The compilation of an expression that uses both.
	program, err := scope.Compile(expressions.VariableSet{}, "variables.invalid == 'x' || variables.number == 2", cel.BoolType)
	if err != nil {
		t.Fatal(err)
	}
	// 3. Its evaluation.
	noValue := func() any { return nil }
	input := &expressions.Input{Object: noValue, OldObject: noValue, Request: noValue, NamespaceObject: noValue}
	input.Variables = expressions.Variables([]string{"number", "invalid"}, func(name string) (ref.Val, error) {
		if name == "invalid" {
			return nil, errors.New("does not compile")
		}
		return types.Int(1), nil
	})
	_, err = program.Bool(t.Context(), input.Values(), nil)
	expectError(t, "Bool()", err, `composited variable "invalid" fails to evaluate: does not compile`)
}

// TestPolicyChecksInvalidVariableAsDynamic checks that a policy with an invalid variable reports the
// error of the variable, and none of the expressions that compare it with any type.
func TestPolicyChecksInvalidVariableAsDynamic(t *testing.T) {
	policy := newCompiler(t).Policy()
	expectError(t, "Declare(invalid)", policy.Declare(expressions.VariableSet{}, "invalid", "1 +"), "compilation failed")
	err := policy.Check(expressions.VariableSet{}, "variables.invalid == 'x' || variables.invalid == 1", cel.BoolType)
	expectError(t, "Check of the invalid variable", err, "")
}

// TestWithTypesChecksObjectFields checks that only fields of known object types are checked. Unknown
// types are dynamic.
func TestWithTypesChecksObjectFields(t *testing.T) {
	thing := cel.ObjectType("thing")
	fields := map[string]map[string]*cel.Type{"thing": {"a": cel.StringType}}
	for name, test := range map[string]struct {
		types      expressions.ObjectTypes
		expression string
		wantErr    string
	}{
		"known fields of the object": {
			types:      expressions.ObjectTypes{Object: thing, Types: fields},
			expression: "object.a == 'x' && oldObject.a == 'x' && params.b == 1",
			wantErr:    "",
		},
		"unknown field of the object": {
			types:      expressions.ObjectTypes{Object: thing, Types: fields},
			expression: "object.b == 'x'",
			wantErr:    "undefined field 'b'",
		},
		"unknown field of the parameter": {
			types:      expressions.ObjectTypes{Params: thing, Types: fields},
			expression: "params.b == 'x'",
			wantErr:    "undefined field 'b'",
		},
		"fields of unknown types": {
			types:      expressions.ObjectTypes{},
			expression: "object.b == 'x' && params.b == 1",
			wantErr:    "",
		},
		"request resource without a type": {
			types:      expressions.ObjectTypes{},
			expression: "authorizer.requestResource.check('get').allowed()",
			wantErr:    "authorizer.requestResource",
		},
	} {
		visible := expressions.VariableSet{Params: true, Authorizer: true}
		issues, err := newCompiler(t).WithTypes(test.types).Issues(visible, test.expression)
		if err != nil || (issues == "") != (test.wantErr == "") || !strings.Contains(issues, test.wantErr) {
			t.Errorf("%s: Issues(%s) = %q, %v, want %q, nil", name, test.expression, issues, err, test.wantErr)
		}
	}
}

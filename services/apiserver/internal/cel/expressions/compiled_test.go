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

// TestCompile: an expression of another type is rejected, even if it could run.
func TestCompile(t *testing.T) {
	c := newCompiler(t)
	for expression, wrong := range map[string]string{"true": "", "1": "must evaluate to bool but got int", "1 +": "compilation failed", "params.a == 1": "undeclared reference"} {
		p, err := c.Compile(expressions.VariableSet{}, expression, cel.BoolType)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) || (p == nil) != (err != nil) {
			t.Errorf("%s: got %v, want %q", expression, err, wrong)
		}
	}
	for _, visible := range []expressions.VariableSet{{}, {Patches: true}} {
		if err := c.Check(visible, "[JSONPatch{op: 'remove', path: '/a'}]", cel.ListType(celenv.JSONPatchType)); (err == nil) != visible.Patches {
			t.Errorf("patches %t: got %v", visible.Patches, err)
		}
	}
}

// TestValues: only variables that are set have values.
func TestValues(t *testing.T) {
	none := (&expressions.Input{}).Values()
	for _, name := range []string{"authorizer", "authorizer.requestResource", "variables"} {
		if _, there := none[name]; there {
			t.Errorf("%s: got a value, want none", name)
		}
	}
	some := (&expressions.Input{Authorizer: types.True, RequestResource: types.False, Variables: types.True}).Values()
	if some["authorizer"] != types.True || some["authorizer.requestResource"] != types.False || some["variables"] != types.True {
		t.Errorf("got values %v, want authorizer and variables, and no request resource", some)
	}
}

// TestVariablesOfScopes: a variable is visible after its declaration. One that does not compile is
// dynamic, and its error is returned.
func TestVariablesOfScopes(t *testing.T) {
	scope := expressions.NewPrograms(newCompiler(t)).Scope()
	if _, err := scope.Declare(expressions.VariableSet{}, "v", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := scope.Compile(expressions.VariableSet{}, "variables.v == 'x'", cel.BoolType); err == nil {
		t.Error("got no error for comparing a number with a text")
	}
	if _, err := scope.Compile(expressions.VariableSet{}, "variables.w == 'x'", cel.BoolType); err == nil {
		t.Error("a variable is visible before its declaration")
	}
	if _, err := scope.Declare(expressions.VariableSet{}, "w", "1 +"); err == nil {
		t.Error("invalid variable: got no error")
	}
	p, err := scope.Compile(expressions.VariableSet{}, "variables.w == 'x' || variables.v == 2", cel.BoolType)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func() any { return nil }
	in := &expressions.Input{Object: nothing, OldObject: nothing, Request: nothing, NamespaceObject: nothing}
	in.Variables = expressions.Variables([]string{"v", "w"}, func(name string) (ref.Val, error) {
		if name == "w" {
			return nil, errors.New("does not compile")
		}
		return types.Int(1), nil
	})
	if _, err := p.Bool(t.Context(), in.Values(), nil); err == nil || !strings.Contains(err.Error(), `composited variable "w" fails to evaluate: does not compile`) {
		t.Error(err)
	}
	policy := newCompiler(t).Policy()
	if err := policy.Declare(expressions.VariableSet{}, "w", "1 +"); err == nil {
		t.Error("invalid variable: got no error")
	}
	if err := policy.Check(expressions.VariableSet{}, "variables.w == 'x' || variables.w == 1", cel.BoolType); err != nil {
		t.Error(err)
	}
}

// TestAgainst checks with known object types. Unknown types are dynamic.
func TestAgainst(t *testing.T) {
	known := map[string]map[string]*cel.Type{"thing": {"a": cel.StringType}}
	for _, c := range []struct {
		of         expressions.Objects
		expression string
		wrong      string
	}{
		{of: expressions.Objects{Object: cel.ObjectType("thing"), Types: known}, expression: "object.a == 'x' && oldObject.a == 'x' && params.b == 1", wrong: ""},
		{of: expressions.Objects{Object: cel.ObjectType("thing"), Types: known}, expression: "object.b == 'x'", wrong: "undefined field 'b'"},
		{of: expressions.Objects{Params: cel.ObjectType("thing"), Types: known}, expression: "params.b == 'x'", wrong: "undefined field 'b'"},
		{of: expressions.Objects{}, expression: "object.b == 'x' && params.b == 1", wrong: ""},
		{of: expressions.Objects{}, expression: "authorizer.requestResource.check('get').allowed()", wrong: "authorizer.requestResource"},
	} {
		issues, err := newCompiler(t).WithTypes(c.of).Issues(expressions.VariableSet{Params: true, Authorizer: true}, c.expression)
		if err != nil || (issues == "") != (c.wrong == "") || !strings.Contains(issues, c.wrong) {
			t.Errorf("%s: got %q, %v, want %q", c.expression, issues, err, c.wrong)
		}
	}
}

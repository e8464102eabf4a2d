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

// TestExpressionsOfWrongTypeAreRejected checks that an expression of an unexpected type is
// rejected, even if it could run.
func TestExpressionsOfWrongTypeAreRejected(t *testing.T) {
	c := newCompiler(t)
	for expression, wantErr := range map[string]string{
		"true":          "",
		"1":             "must evaluate to bool but got int",
		"1 +":           "compilation failed",
		"params.a == 1": "undeclared reference",
	} {
		p, err := c.Compile(expressions.VariableSet{}, expression, cel.BoolType)
		hasEither := (p == nil) == (err != nil)
		if !isWantedError(err, wantErr) || !hasEither {
			t.Errorf("Compile(%q) = %v, %v, want an error that contains %q", expression, p, err, wantErr)
		}
	}
	for _, visible := range []expressions.VariableSet{{}, {Patches: true}} {
		const patches = "[JSONPatch{op: 'remove', path: '/a'}]"
		err := c.Check(visible, patches, cel.ListType(celenv.JSONPatchType))
		if accepted := err == nil; accepted != visible.Patches {
			t.Errorf("Check with Patches=%t = %v, want an error: %t", visible.Patches, err, !visible.Patches)
		}
	}
}

// TestUnsetVariablesHaveNoValue checks that only variables that are set have values.
func TestUnsetVariablesHaveNoValue(t *testing.T) {
	none := (&expressions.Input{}).Values()
	for _, name := range []string{"authorizer", "authorizer.requestResource", "variables"} {
		if value, ok := none[name]; ok {
			t.Errorf("Values() of an empty input: %s = %v, want no value", name, value)
		}
	}
	some := (&expressions.Input{Authorizer: types.True, RequestResource: types.False, Variables: types.True}).Values()
	if some["authorizer"] != types.True || some["authorizer.requestResource"] != types.False || some["variables"] != types.True {
		t.Errorf("Values() = %v, want authorizer, its request resource and variables", some)
	}
}

// TestVariableIsVisibleAfterItsDeclaration checks that a variable is visible after its declaration,
// and that one that does not compile is dynamic and its error is returned.
func TestVariableIsVisibleAfterItsDeclaration(t *testing.T) {
	scope := expressions.NewPrograms(newCompiler(t)).Scope()
	if _, err := scope.Declare(expressions.VariableSet{}, "v", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := scope.Compile(expressions.VariableSet{}, "variables.v == 'x'", cel.BoolType); err == nil {
		t.Error("Compile of a comparison of a number with a string = nil, want a type error")
	}
	if _, err := scope.Compile(expressions.VariableSet{}, "variables.w == 'x'", cel.BoolType); err == nil {
		t.Error("Compile of an undeclared variable = nil, want an error")
	}
	if _, err := scope.Declare(expressions.VariableSet{}, "w", "1 +"); err == nil {
		t.Error("Declare of an invalid variable = nil, want an error")
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
	want := `composited variable "w" fails to evaluate: does not compile`
	if _, err := p.Bool(t.Context(), in.Values(), nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Bool = %v, want an error that contains %q", err, want)
	}
	policy := newCompiler(t).Policy()
	if err := policy.Declare(expressions.VariableSet{}, "w", "1 +"); err == nil {
		t.Error("Declare of an invalid variable = nil, want an error")
	}
	if err := policy.Check(expressions.VariableSet{}, "variables.w == 'x' || variables.w == 1", cel.BoolType); err != nil {
		t.Errorf("Check of a variable of dynamic type = %v, want nil", err)
	}
}

// TestWithTypesChecksObjectFields checks expressions with known object types. Unknown types are
// dynamic.
func TestWithTypesChecksObjectFields(t *testing.T) {
	things := map[string]map[string]*cel.Type{"thing": {"a": cel.StringType}}
	objectThing := expressions.ObjectTypes{Object: cel.ObjectType("thing"), Types: things}
	paramsThing := expressions.ObjectTypes{Params: cel.ObjectType("thing"), Types: things}
	for _, c := range []struct {
		types      expressions.ObjectTypes
		expression string
		wantErr    string
	}{
		{types: objectThing, expression: "object.a == 'x' && oldObject.a == 'x' && params.b == 1"},
		{types: objectThing, expression: "object.b == 'x'", wantErr: "undefined field 'b'"},
		{types: paramsThing, expression: "params.b == 'x'", wantErr: "undefined field 'b'"},
		{expression: "object.b == 'x' && params.b == 1"},
		{expression: "authorizer.requestResource.check('get').allowed()", wantErr: "authorizer.requestResource"},
	} {
		issues, err := newCompiler(t).WithTypes(c.types).Issues(expressions.VariableSet{Params: true, Authorizer: true}, c.expression)
		if err != nil || (issues == "") != (c.wantErr == "") || !strings.Contains(issues, c.wantErr) {
			t.Errorf("Issues(%q) = %q, %v, want issues with %q", c.expression, issues, err, c.wantErr)
		}
	}
}

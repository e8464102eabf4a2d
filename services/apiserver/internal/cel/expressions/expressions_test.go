package expressions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/services/apiserver/internal/cel/expressions"
)

func newCompiler(t testing.TB) *expressions.Compiler {
	t.Helper()
	c, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestVisibleVariables checks which variables an expression may use, and their types.
func TestVisibleVariables(t *testing.T) {
	c := newCompiler(t)
	all := expressions.VariableSet{Params: true, Authorizer: true}
	tests := []struct {
		visible    expressions.VariableSet
		expression string
		want       *cel.Type
		wrong      string
	}{
		{visible: expressions.VariableSet{}, expression: "object.a == oldObject.b", want: cel.BoolType, wrong: ""},
		{
			visible:    expressions.VariableSet{},
			expression: "request.kind.group + request.requestResource.resource + request.userInfo.extra['a'][0]",
			want:       cel.StringType,
			wrong:      "",
		},
		{visible: expressions.VariableSet{}, expression: "request.options.dryRun", want: cel.DynType, wrong: ""},
		{visible: expressions.VariableSet{}, expression: "request.object", want: cel.DynType, wrong: "undefined field 'object'"},
		{
			visible:    expressions.VariableSet{},
			expression: "namespaceObject.status.conditions[0].lastTransitionTime < namespaceObject.metadata.creationTimestamp",
			want:       cel.BoolType,
			wrong:      "",
		},
		{
			visible:    expressions.VariableSet{},
			expression: "namespaceObject.metadata.UID == namespaceObject.metadata.uid",
			want:       cel.BoolType,
			wrong:      "undefined field 'uid'",
		},
		{visible: expressions.VariableSet{}, expression: "params.a", want: cel.DynType, wrong: "undeclared reference to 'params'"},
		{
			visible:    expressions.VariableSet{},
			expression: "authorizer.path('/').check('get').allowed()",
			want:       cel.BoolType,
			wrong:      "undeclared reference to 'authorizer'",
		},
		{visible: all, expression: "params.a", want: cel.DynType, wrong: ""},
		{visible: all, expression: "authorizer.requestResource.check('get').allowed()", want: cel.BoolType, wrong: ""},
		{
			visible:    all,
			expression: "authorizer.requestResource.allowed()",
			want:       cel.BoolType,
			wrong:      "found no matching overload for 'allowed'",
		},
		{visible: all, expression: "variables.a", want: cel.DynType, wrong: "undeclared reference to 'variables'"},
		{visible: all, expression: "params.a", want: cel.BoolType, wrong: "must evaluate to bool but got dyn"},
		{visible: all, expression: "1", want: cel.StringType, wrong: "must evaluate to string but got int"},
		{visible: all, expression: "1 +", want: cel.IntType, wrong: "compilation failed: ERROR: <input>:1:4: Syntax error"},
	}
	for _, tt := range tests {
		err := c.Check(tt.visible, tt.expression, tt.want)
		switch {
		case tt.wrong == "" && err != nil:
			t.Errorf("%s: %v", tt.expression, err)
		case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
			t.Errorf("%s: got %v, want %q", tt.expression, err, tt.wrong)
		}
	}
	if err := c.Check(all, "1", cel.StringType, cel.NullType); err == nil ||
		err.Error() != "must evaluate to one of [string null_type] but got int" {
		t.Errorf("two types: got %v", err)
	}
}

// TestPolicyChecksTypesOfVariables checks that expressions of a policy see its declared
// variables with their types.
func TestPolicyChecksTypesOfVariables(t *testing.T) {
	c := newCompiler(t)
	policy := c.Policy()
	other := c.Policy()
	visible := expressions.VariableSet{Authorizer: true}
	if err := policy.Check(visible, "variables.list == 1", cel.BoolType); err == nil {
		t.Error("a variable is visible before its declaration")
	}
	for name, expression := range map[string]string{
		"list": "[{'a': 1}]", "may": "authorizer.path('/')", "any": "object.x", "time": "timestamp('2026-01-01T00:00:00Z')",
	} {
		if err := policy.Declare(visible, name, expression); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := policy.Declare(visible, "broken", "nothing"); err == nil {
		t.Error("variable without type: got no error")
	}
	for expression, wrong := range map[string]string{
		"variables.list[0]['a'] == 1":                               "",
		"variables.list[0]['a'] == 'x'":                             "found no matching overload for '_==_' applied to '(int, string)'",
		"variables.may.check('get').allowed()":                      "",
		"variables.any.check('get') == variables.broken.y.z":        "",
		"variables.time.getFullYear() == 2026":                      "",
		"variables.other == 1":                                      "undefined field 'other'",
		"variables.list.map(x, x['a']).sum() == 1 && has(object.a)": "",
	} {
		err := policy.Check(visible, expression, cel.BoolType)
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: got %v, want %q", expression, err, wrong)
		}
	}
	if err := other.Check(visible, "variables.any == 1", cel.BoolType); err == nil {
		t.Error("variables of another policy are visible")
	}
}

// FuzzCheck: no text causes a panic.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"object.a", "variables.b", "authorizer.path('/').check('get')", "((((", "[1, 2].map(x, x)", "request.a.?b[0]"} {
		f.Add(seed)
	}
	c := newCompiler(f)
	f.Fuzz(func(t *testing.T, expression string) {
		policy := c.Policy()
		visible := expressions.VariableSet{Params: true, Authorizer: true}
		declared := policy.Declare(visible, "v", expression)
		checked := policy.Check(visible, expression, cel.BoolType)
		if declared != nil && checked == nil {
			t.Errorf("%q: valid as a condition, not as a variable (%v)", expression, declared)
		}
		if err := policy.Check(visible, "variables.v == null || true", cel.BoolType); err != nil && declared != nil {
			t.Errorf("%q: got type %v of a variable that does not compile", expression, err)
		}
	})
}

// TestVariablesDoNotGrowTypes checks that if variables double the types of others, the type
// eventually becomes dynamic.
func TestVariablesDoNotGrowTypes(t *testing.T) {
	c, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	p := c.Policy()
	if err := p.Declare(expressions.VariableSet{}, "v0", "[1]"); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if err := p.Declare(expressions.VariableSet{}, fmt.Sprintf("v%d", i+1), fmt.Sprintf("{variables.v%[1]d: variables.v%[1]d}", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Check(expressions.VariableSet{}, "variables.v1 == 1"); err == nil {
		t.Error("the types of the first variables are dynamic")
	}
	if err := p.Check(expressions.VariableSet{}, "variables.v60 == {1: 1}"); err != nil {
		t.Error(err)
	}
}

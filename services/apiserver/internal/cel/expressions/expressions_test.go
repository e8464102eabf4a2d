package expressions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/services/apiserver/internal/cel/expressions"
)

// matchesWantedError reports whether err contains want, or is nil if want is empty.
func matchesWantedError(err error, want string) bool {
	if err == nil || want == "" {
		return err == nil && want == ""
	}
	return strings.Contains(err.Error(), want)
}

// newCompiler returns a compiler.
func newCompiler(t testing.TB) *expressions.Compiler {
	t.Helper()
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	return compiler
}

// TestExpressionsSeeVisibleVariables checks which variables an expression may use, and their types.
func TestExpressionsSeeVisibleVariables(t *testing.T) {
	compiler := newCompiler(t)
	all := expressions.VariableSet{Params: true, Authorizer: true}
	tests := []struct {
		visible    expressions.VariableSet // besides the variables that are always visible
		expression string
		want       *cel.Type
		wantErr    string // part of the error; empty for none
	}{
		{expression: "object.a == oldObject.b", want: cel.BoolType},
		{
			expression: "request.kind.group + request.requestResource.resource + request.userInfo.extra['a'][0]",
			want:       cel.StringType,
		},
		{expression: "request.options.dryRun", want: cel.DynType},
		{expression: "request.object", want: cel.DynType, wantErr: "undefined field 'object'"},
		{
			expression: "namespaceObject.status.conditions[0].lastTransitionTime < namespaceObject.metadata.creationTimestamp",
			want:       cel.BoolType,
		},
		{
			expression: "namespaceObject.metadata.UID == namespaceObject.metadata.uid",
			want:       cel.BoolType,
			wantErr:    "undefined field 'uid'",
		},
		{expression: "params.a", want: cel.DynType, wantErr: "undeclared reference to 'params'"},
		{
			expression: "authorizer.path('/').check('get').allowed()",
			want:       cel.BoolType,
			wantErr:    "undeclared reference to 'authorizer'",
		},
		{visible: all, expression: "params.a", want: cel.DynType},
		{visible: all, expression: "authorizer.requestResource.check('get').allowed()", want: cel.BoolType},
		{
			visible:    all,
			expression: "authorizer.requestResource.allowed()",
			want:       cel.BoolType,
			wantErr:    "found no matching overload for 'allowed'",
		},
		{visible: all, expression: "variables.a", want: cel.DynType, wantErr: "undeclared reference to 'variables'"},
		{visible: all, expression: "params.a", want: cel.BoolType, wantErr: "must evaluate to bool but got dyn"},
		{visible: all, expression: "1", want: cel.StringType, wantErr: "must evaluate to string but got int"},
		{visible: all, expression: "1 +", want: cel.IntType, wantErr: "compilation failed: ERROR: <input>:1:4: Syntax error"},
	}
	for _, test := range tests {
		err := compiler.Check(test.visible, test.expression, test.want)
		if !matchesWantedError(err, test.wantErr) {
			t.Errorf("Check(%+v, %q, %v) = %v, want error %q", test.visible, test.expression, test.want, err, test.wantErr)
		}
	}
	const want = "must evaluate to one of [string null_type] but got int"
	if err := compiler.Check(all, "1", cel.StringType, cel.NullType); err == nil || err.Error() != want {
		t.Errorf("Check(1) with two types = %v, want %s", err, want)
	}
}

// TestPolicyChecksTypesOfVariables checks that expressions of a policy see its declared
// variables with their types.
func TestPolicyChecksTypesOfVariables(t *testing.T) {
	compiler := newCompiler(t)
	policy := compiler.Policy()
	other := compiler.Policy()
	visible := expressions.VariableSet{Authorizer: true}
	if err := policy.Check(visible, "variables.list == 1", cel.BoolType); err == nil {
		t.Error("Check with a variable before its declaration = nil, want an error")
	}
	for name, expression := range map[string]string{
		"list": "[{'a': 1}]", "may": "authorizer.path('/')", "any": "object.x", "time": "timestamp('2026-01-01T00:00:00Z')",
	} {
		if err := policy.Declare(visible, name, expression); err != nil {
			t.Errorf("Declare(%s, %q) = %v, want nil", name, expression, err)
		}
	}
	if err := policy.Declare(visible, "broken", "nothing"); err == nil {
		t.Error("Declare(broken, nothing) = nil, want an error")
	}
	for expression, wantErr := range map[string]string{
		"variables.list[0]['a'] == 1":                               "",
		"variables.list[0]['a'] == 'x'":                             "found no matching overload for '_==_' applied to '(int, string)'",
		"variables.may.check('get').allowed()":                      "",
		"variables.any.check('get') == variables.broken.y.z":        "",
		"variables.time.getFullYear() == 2026":                      "",
		"variables.other == 1":                                      "undefined field 'other'",
		"variables.list.map(x, x['a']).sum() == 1 && has(object.a)": "",
	} {
		err := policy.Check(visible, expression, cel.BoolType)
		if !matchesWantedError(err, wantErr) {
			t.Errorf("Check(%q) = %v, want error %q", expression, err, wantErr)
		}
	}
	if err := other.Check(visible, "variables.any == 1", cel.BoolType); err == nil {
		t.Error("Check with a variable of another policy = nil, want an error")
	}
}

// FuzzCheck checks that no text causes a panic, and that an expression that is valid as a condition is
// also valid as a variable.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"object.a", "variables.b", "authorizer.path('/').check('get')", "((((", "[1, 2].map(x, x)", "request.a.?b[0]",
	} {
		f.Add(seed)
	}
	compiler := newCompiler(f)
	f.Fuzz(func(t *testing.T, expression string) {
		policy := compiler.Policy()
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
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	policy := compiler.Policy()
	if err := policy.Declare(expressions.VariableSet{}, "v0", "[1]"); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		doubled := fmt.Sprintf("{variables.v%[1]d: variables.v%[1]d}", i)
		if err := policy.Declare(expressions.VariableSet{}, fmt.Sprintf("v%d", i+1), doubled); err != nil {
			t.Fatal(err)
		}
	}
	if err := policy.Check(expressions.VariableSet{}, "variables.v1 == 1"); err == nil {
		t.Error("Check(variables.v1 == 1) = nil, want an error: the types of the first variables are known")
	}
	if err := policy.Check(expressions.VariableSet{}, "variables.v60 == {1: 1}"); err != nil {
		t.Errorf("Check(variables.v60 == {1: 1}) = %v, want nil: the type is dynamic", err)
	}
}

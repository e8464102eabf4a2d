package celenv_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

func patchEnv(t *testing.T) *celenv.Env {
	t.Helper()
	base, err := celenv.NewBaseEnv()
	if err != nil {
		t.Fatal(err)
	}
	if base, err = base.Patches(); err != nil {
		t.Fatal(err)
	}
	env, err := base.Extend(map[string]*cel.Type{"object": cel.DynType}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

const patchLimit = 1 << 10

// TestConfigurationConvertsBuiltObjectsToJSON checks the objects that expressions build, as JSON,
// or their errors.
func TestConfigurationConvertsBuiltObjectsToJSON(t *testing.T) {
	env := patchEnv(t)
	for _, tt := range []struct{ expression, want, wantErr string }{
		{expression: `Object{}`, want: `{}`},
		{
			expression: `Object{metadata: Object.metadata{labels: {"a": object.name}}, n: 1, u: 2u, f: 1.5, b: true, z: null}`,
			want:       `{"b":true,"f":1.5,"metadata":{"labels":{"a":"ada"}},"n":1,"u":2,"z":null}`,
		},
		{
			expression: `Object{spec: Object.spec{containers: object.names.map(n, Object.spec.containers{name: n})}}`,
			want:       `{"spec":{"containers":[{"name":"x"},{"name":"y"}]}}`,
		},
		{expression: `Object{spec: object}`, want: `{"spec":{"name":"ada","names":["x","y"]}}`},
		{expression: `Object{?a: optional.none(), ?b: object.?name}`, want: `{"b":"ada"}`},
		{
			expression: `Object{a: duration("90s"), b: timestamp("2020-01-01T00:00:00Z"), c: b"hi"}`,
			want:       `{"a":"90s","b":"2020-01-01T00:00:00Z","c":"aGk="}`,
		},
		{expression: `Object{a: {"b": [{"c": Object.a{}}]}}`, want: `{"a":{"b":[{"c":{}}]}}`},
		{expression: `Object.spec{}`, wantErr: "Object.spec is not an Object"},
		{
			expression: `Object{spec: Object.status{}}`,
			wantErr:    `unexpected type name "Object.status", expected "Object.spec", which matches field name path from root Object type`,
		},
		{expression: `Object{a: [{"b": Object.b{}}]}`, wantErr: `unexpected type name "Object.b", expected "Object.a"`},
		{expression: `Object{a: {1: 2}}`, wantErr: "map key 1 is of type int, not string"},
		{expression: `Object{a: 0.0 / 0.0}`, wantErr: "is not part of an object"},
		{expression: `Object{a: type(1)}`, wantErr: "is not part of an object"},
		{
			expression: `Object{a: [1,2,3,4].map(a, [1,2,3,4].map(b, [1,2,3,4].map(c, [1,2,3,4])))}`,
			wantErr:    "the value is too large",
		},
		{
			expression: `Object{a: "0123456789".replace("", "0123456789").replace("", "0123456789")}`,
			wantErr:    "the value is too large",
		},
	} {
		t.Run(tt.expression, func(t *testing.T) {
			p, err := env.Compile(tt.expression)
			if err != nil {
				t.Fatal(err)
			}
			v, err := p.Eval(t.Context(), patched(), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := celenv.Configuration(v, patchLimit)
			checkResult(t, got, err, tt.want, tt.wantErr)
		})
	}
}

func patched() map[string]any {
	return map[string]any{"object": map[string]any{"name": "ada", "names": []any{"x", "y"}}}
}

func checkResult(t *testing.T, got any, err error, wantJSON, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("error is %v, want %s", err, wantErr)
		}
		return
	}
	data, _ := json.Marshal(got)
	if err != nil || string(data) != wantJSON {
		t.Errorf("got %s, %v, want %s", data, err, wantJSON)
	}
}

// TestOperationsConvertsResultsToJSONPatch checks the conversion of expression results to JSON
// patch operations, and its errors.
func TestOperationsConvertsResultsToJSONPatch(t *testing.T) {
	env := patchEnv(t)
	for _, tt := range []struct{ expression, want, wantErr string }{
		{expression: `[]`, want: `null`},
		{
			expression: `[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a/b~c"), value: object.name}, JSONPatch{op: "move", from: "/a", path: "/b"}]`,
			want:       `[{"Op":"add","Path":"/metadata/labels/a~1b~0c","From":"","Value":"ada","HasValue":true},{"Op":"move","Path":"/b","From":"/a","Value":null,"HasValue":false}]`,
		},
		{
			expression: `[JSONPatch{op: "add", path: "/a", value: Object.spec{b: Object.spec.b{}}}, JSONPatch{op: "test", path: "/a", value: null}]`,
			want:       `[{"Op":"add","Path":"/a","From":"","Value":{"b":{}},"HasValue":true},{"Op":"test","Path":"/a","From":"","Value":null,"HasValue":true}]`,
		},
		{expression: `[JSONPatch{op: "add", path: "/a", value: Object.spec{b: Object.c{}}}]`, wantErr: "unexpected type name"},
		{expression: `[JSONPatch{op: "add", path: "/a", value: {1: 2}}]`, wantErr: "could not marshal to JSON"},
		{expression: `[1]`, wantErr: "got element of int"},
		{expression: `1`, wantErr: "has no elements"},
		{
			expression: `object.names.map(a, JSONPatch{op: "add", path: "/a".replace("", "0123456789012345678901234567890123456789").replace("", "0123456789")})`,
			wantErr:    "too large",
		},
	} {
		t.Run(tt.expression, func(t *testing.T) {
			p, err := env.Compile(tt.expression)
			if err != nil {
				t.Fatal(err)
			}
			v, err := p.Eval(t.Context(), patched(), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := celenv.Operations(v, patchLimit)
			checkResult(t, got, err, tt.want, tt.wantErr)
		})
	}
}

// TestPatchExpressionsHaveDeclaredTypes checks the types of patches and their comparison.
func TestPatchExpressionsHaveDeclaredTypes(t *testing.T) {
	env := patchEnv(t)
	for _, tt := range []struct{ expression, want, wantErr string }{
		{expression: `[JSONPatch{op: "add"}]`, want: "list(JSONPatch)"},
		{expression: `object.a ? [JSONPatch{op: "add"}] : []`, want: "list(JSONPatch)"},
		{expression: `Object{a: 1}`, want: "Object"},
		{expression: `Object.a.b{a: 1}`, want: "Object.a.b"},
		{expression: `JSONPatch{op: 1}`, wantErr: "expected type of field 'op' is 'string' but provided type is 'int'"},
		{expression: `JSONPatch{nowhere: 'x'}`, wantErr: "expected type of field 'nowhere' is '' but provided type is 'string'"},
		{expression: `Objects{}`, wantErr: "undeclared reference to 'Objects'"},
	} {
		ast, issues := env.Check(tt.expression)
		if tt.wantErr != "" {
			if issues.Err() == nil || !strings.Contains(issues.String(), tt.wantErr) {
				t.Errorf("%s: %v, want %s", tt.expression, issues, tt.wantErr)
			}
			continue
		}
		if issues.Err() != nil || ast.OutputType().String() != tt.want {
			t.Errorf("%s: %v, want %s", tt.expression, issues, tt.want)
		}
	}
}

// TestBuiltValuesAreComparedByTypeAndFields checks the equality of objects and patches that
// expressions build.
func TestBuiltValuesAreComparedByTypeAndFields(t *testing.T) {
	env := patchEnv(t)
	for expression, want := range map[string]bool{
		`Object{a: 1} == Object{a: 1}`:                     true,
		`Object{a: 1} == Object{a: 2}`:                     false,
		`Object{a: 1} == Object{b: 1}`:                     false,
		`Object{a: 1} == Object{a: 1, b: 1}`:               false,
		`dyn(Object{}) == dyn(Object.a{})`:                 false,
		`JSONPatch{op: "a"} == JSONPatch{op: "a"}`:         true,
		`dyn(JSONPatch{op: "a"}) == dyn("a")`:              false,
		`type(Object.a{}) == type(Object.a{})`:             true,
		`optional.ofNonZeroValue(Object{}).hasValue()`:     false,
		`optional.ofNonZeroValue(Object{a: 1}).hasValue()`: true,
	} {
		p, err := env.Compile(expression, cel.BoolType)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Bool(t.Context(), patched(), nil); err != nil || got != want {
			t.Errorf("%s: got %t, %v, want %t", expression, got, err, want)
		}
	}
}

// TestPatchOperationMustBeString checks the type of a field that is known only at run time.
func TestPatchOperationMustBeString(t *testing.T) {
	program, err := patchEnv(t).Compile(`JSONPatch{op: object.names}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := program.Eval(t.Context(), patched(), nil); err == nil || !strings.Contains(err.Error(),
		"unexpected type list for JSONPatchType 'op' field") {
		t.Errorf("list as an operation: %v, want the error: unexpected type list for JSONPatchType 'op' field", err)
	}
}

// TestPatchTypesNeedTheirLibrary checks that expressions without the patch library cannot build
// objects and patches.
func TestPatchTypesNeedTheirLibrary(t *testing.T) {
	plain, err := celenv.NewBaseEnv()
	if err != nil {
		t.Fatal(err)
	}
	withoutPatches, err := plain.Extend(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, expression := range []string{`Object{}`, `JSONPatch{}`, `jsonpatch.escapeKey("a")`} {
		if _, issues := withoutPatches.Check(expression); issues.Err() == nil {
			t.Errorf("%s without the patch types: got no error, want one", expression)
		}
	}
}

package rules_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// parseSchema decodes a schema that must be valid JSON.
func parseSchema(t testing.TB, text string) *v1.JSONSchemaProps {
	t.Helper()
	var schemaProps v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &schemaProps); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &schemaProps
}

// parseDoc parses a document that must be valid JSON.
func parseDoc(t testing.TB, text string) *tape.Doc {
	t.Helper()
	doc, err := tape.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return doc
}

// evaluate checks a document as a create, without warnings or reports of costs.
func evaluate(t testing.TB, ruleSet *rules.Rules, doc *tape.Doc) field.ErrorList {
	t.Helper()
	return ruleSet.Evaluate(t.Context(), doc, nil, nil, nil)
}

// compileError is the prefix of the error of a rule that does not compile.
const compileError = "rule compile error: compilation failed"

// schemaOfAllTypes has fields of each type and one rule, which is the argument of its format.
const schemaOfAllTypes = `{"type":"object","properties":{
	"set":{"type":"array","x-kubernetes-list-type":"set","maxItems":10,"items":{"type":"string","maxLength":9}},
	"keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"maxItems":10,"items":{"type":"object","properties":{"k":{"type":"string","maxLength":9},"v":{"type":"integer"}}}},
	"plain":{"type":"array","maxItems":10,"items":{"type":"integer","nullable":true}},
	"map":{"type":"object","maxProperties":30,"additionalProperties":{"type":"integer","nullable":true}},
	"o":{"type":"object","properties":{"a":{"type":"string","maxLength":9,"nullable":true},"odd-name":{"type":"integer"},"in":{"type":"boolean"},"a__b":{"type":"integer"},"x.y/z":{"type":"integer"},"1st":{"type":"integer"},
		"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"any":{"x-kubernetes-preserve-unknown-fields":true}}},
	"p":{"type":"object","properties":{"a":{"type":"string","maxLength":9,"nullable":true},"odd-name":{"type":"integer"},"in":{"type":"boolean"},"a__b":{"type":"integer"},"x.y/z":{"type":"integer"},"1st":{"type":"integer"},
		"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"any":{"x-kubernetes-preserve-unknown-fields":true}}},
	"ios":{"x-kubernetes-int-or-string":true},"num":{"type":"number"},"empty":{"type":"object"},
	"pod":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
	"date":{"type":"string","format":"date"},"time":{"type":"string","format":"date-time"},"took":{"type":"string","format":"duration"},"bytes":{"type":"string","format":"byte","maxLength":9}},
	"x-kubernetes-validations":[{"rule":%s,"message":"does not hold"}]}`

// objectOfAllTypes has a value for each field of schemaOfAllTypes.
const objectOfAllTypes = `{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","generateName":"g-","labels":{"a":"b"}},
	"set":["a","b","c"],"keyed":[{"k":"x","v":1},{"k":"y","v":2}],"plain":[1,null,3],"map":{"a":1,"n":null,"b.c":2},
	"o":{"a":null,"odd-name":1,"in":true,"a__b":2,"x.y/z":3,"1st":4,"free":{"q":1},"any":[1,{"b":2}]},
	"p":{"odd-name":1,"in":true,"a__b":2,"x.y/z":3,"1st":4,"free":{"q":1},"any":[1,{"b":2}]},
	"ios":"50%","num":1,"empty":{"x":1},"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u"},"spec":{}},
	"date":"2024-02-03","time":"2024-02-03T04:05:06Z","took":"90s","bytes":"aGk="}`

// TestRuleSeesTypedValues checks how fields of custom resources appear in rules.
func TestRuleSeesTypedValues(t *testing.T) {
	tests := map[string]string{ // error by rule
		`self.metadata.name == 'n' && self.metadata.generateName == 'g-' && self.kind == 'K' && self.apiVersion == 'g/v1'`: "",
		`self.pod.kind == 'Pod' && self.pod.metadata.name == 'p' && !has(self.pod.metadata.generateName)`:                  "",

		`self.set == ['c', 'a', 'b'] && self.set != ['a', 'b', 'd'] && self.set != ['a', 'b']`: "",
		`(self.set + ['c', 'd', 'd']).size() == 4 && 'a' in self.set && !('x' in self.set)`:    "",
		`self.set[0] == 'a' && self.set[5] == 'x'`:                                             "index out of bounds: 5 evaluating rule: does not hold",
		`self.set.isSorted() && self.set.max() == 'c' && self.set.indexOf('b') == 1`:           "",
		`self.keyed == self.keyed.map(x, x) && self.keyed.all(x, x.v > 0)`:                     "",
		`(self.keyed + self.keyed).size() == 2 && (self.plain + self.plain).size() == 6`:       "",
		`self.keyed.filter(x, x.k == 'y')[0].v == 2 && type(self.keyed) == list`:               "",
		`self.keyed[0] == self.keyed[0] && self.keyed[0] != self.keyed[1]`:                     "",
		`self.plain[0] + 1 == 2 && self.plain.exists(x, x == 3)`:                               "",

		`self.map.a == 1 && self.map['b.c'] == 2 && 'n' in self.map && !('x' in self.map)`: "",
		`self.map.all(k, k != 'x') && self.map.map(k, k) == ['a', 'n', 'b.c']`:             "",
		`self.map['x'] == 1`: "no such key: x evaluating rule: does not hold",
		`self.map[?'x'].orValue(7) == 7 && self.map.size() == 3 && type(self.map) == map`: "",

		`!has(self.o.a) && self.o.odd__dash__name == 1 && self.o.__in__ && self.o.a__underscores__b == 2 && self.o.x__dot__y__slash__z == 3`: "",
		`self.p == self.p && self.o != self.p`:        "",
		`self.o == self.o`:                            "does not hold", // a null property counts as absent
		`self.o.a == 'x'`:                             "no such key: a evaluating rule: does not hold",
		`self.o.?a.orValue('none') == 'none'`:         "",
		`self.ios == '50%' && self.ios != 1`:          "",
		`self.ios.startsWith('5')`:                    "",
		`self.ios + 1 > 2`:                            "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: does not hold",
		`type(self.ios) == int ? false : true`:        "",
		`self.num == 1.0 && type(self.num) == double`: "",
		`self.empty == self.empty`:                    "",

		`self.date.getFullYear() == 2024 && self.time.getHours() == 4 && self.time > self.date`: "",
		`self.took == duration('1m30s') && self.bytes == b'hi'`:                                 "",
		`oldSelf == self`: "", // a transition rule without an old value
		`false`:           "does not hold",
		`self.set.map(x, x + x).filter(x, x != 'bb') == ['aa', 'cc']`:                "",
		`self.set.transformList(i, v, i > 0, v) == ['b', 'c']`:                       "",
		`self.map.transformMap(k, v, k != 'n', v + 1) == {'a': 2, 'b.c': 3}`:         "",
		`dyn(self.map) == dyn(self.map) && string(self.plain[0]) == '1'`:             "",
		`'%s %s'.format([self.set, self.keyed[0].v]) == '["a", "b", "c"] 1'`:         "",
		`sets.contains(self.set, ['a']) && sets.equivalent(self.set, ['c','b','a'])`: "",
		`self.set.exists_one(x, x == 'a') && size(self.set) == 3`:                    "",
	}
	doc := parseDoc(t, objectOfAllTypes)
	for rule, want := range tests {
		t.Run(rule, func(t *testing.T) {
			quoted, _ := json.Marshal(rule)
			schemaProps := parseSchema(t, fmt.Sprintf(schemaOfAllTypes, quoted))
			if errs := compiler.CheckSchema(rules.SchemaCheck{Schema: schemaProps, Path: field.NewPath("s")}); len(errs) > 0 {
				t.Fatal(errs)
			}
			ruleSet := compiler.Compile(schemaProps, nil)
			var got string
			if errs := evaluate(t, ruleSet, doc); len(errs) > 0 {
				got = errs[0].Detail
			}
			if got != want {
				t.Errorf("first error = %q, want %q", got, want)
			}
		})
	}
}

// TestValuesWithoutTypeFailRules checks rules for values whose schema has no type in CEL, such as a
// list of anything. Definitions with such rules are invalid, but may be stored.
func TestValuesWithoutTypeFailRules(t *testing.T) {
	const message = "rule compiler initialization error: failed to convert to declType for CEL validation rules"
	tests := map[string]struct {
		schema, doc string
		want        int // number of errors
	}{
		"list of items without a type": {
			schema: `{"type":"array","items":{"x-kubernetes-preserve-unknown-fields":true},"x-kubernetes-validations":[{"rule":"true"}]}`,
			doc:    `[1]`,
			want:   1,
		},
		"null instead of such a list": {schema: `{"type":"array","x-kubernetes-validations":[{"rule":"true"}]}`, doc: `null`, want: 0},
		"schema of items in the schema of an object": {
			schema: `{"type":"object","items":{"type":"object","x-kubernetes-validations":[{"rule":"true"}]}}`,
			doc:    `{"a":1}`,
			want:   0,
		},
		"rule of items without a type": {
			schema: `{"type":"array","items":{"x-kubernetes-validations":[{"rule":"true"}]}}`,
			doc:    `[1]`,
			want:   1,
		},
		"rule of map values without a type": {
			schema: `{"type":"object","additionalProperties":{"x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"true"}]}}`,
			doc:    `{"a":1,"b":2}`,
			want:   2,
		},
		"rule of a property without a type": {
			schema: `{"type":"object","properties":{"a":{"x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"true"}]}}}`,
			doc:    `{"a":1}`,
			want:   0,
		},
	}
	for name, test := range tests {
		errs := evaluate(t, compiler.Compile(parseSchema(t, test.schema), nil), parseDoc(t, test.doc))
		if len(errs) != test.want {
			t.Errorf("%s: got errors %v, want %d", name, errs, test.want)
		}
		for _, err := range errs {
			if err.Detail != message {
				t.Errorf("%s: got error %q, want %q", name, err.Detail, message)
			}
		}
	}
}

// TestInvalidValuesFailRules checks the errors of rules that read values of another type than the
// schema's.
func TestInvalidValuesFailRules(t *testing.T) {
	wrong := parseDoc(t, `{"set":"x","keyed":{},"map":[],"o":1,"ios":true,"num":"x","pod":1,
		"date":"x","time":"x","took":"x","bytes":"!","empty":1,"plain":[1.5]}`)
	tests := map[string]string{
		`self.set.size() == 0`:        "invalid data, expected an array for the provided schema with type=array",
		`self.map.size() == 0`:        "invalid data, expected a map for the provided schema with type=object",
		`self.o.in__x == 1`:           compileError,
		`self.ios == 1`:               "invalid data, expected XIntOrString value to be either a string or integer",
		`self.num == 1.0`:             "invalid data, expected float, got string",
		`self.plain[0] == 1`:          "invalid data, expected int, got float64",
		`self.date.getFullYear() > 0`: "Invalid date formatted string x",
		`self.time.getFullYear() > 0`: "Invalid date-time formatted string x",
		`self.took > duration('1s')`:  "Invalid duration x",
		`self.bytes == b''`:           "Invalid byte formatted string !",
	}
	for rule, want := range tests {
		quoted, _ := json.Marshal(rule)
		schemaProps := parseSchema(t, fmt.Sprintf(schemaOfAllTypes, quoted))
		var got string
		if errs := evaluate(t, compiler.Compile(schemaProps, nil), wrong); len(errs) > 0 {
			got = errs[0].Detail
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want it to begin with %q", rule, got, want)
		}
	}
}

// TestEqualRulesShareOneProgram checks that concurrent compilations share a program while it is in
// use.
func TestEqualRulesShareOneProgram(t *testing.T) {
	schemaProps := parseSchema(t, `{"type":"object","properties":{"a":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0"}]}}}`)
	compiler := rules.NewCompiler()
	var wait sync.WaitGroup
	ruleSets := make([]*rules.Rules, 8)
	for i := range ruleSets {
		wait.Go(func() {
			ruleSets[i] = compiler.Compile(schemaProps, nil)
			for _, number := range []string{"0", "1"} {
				if errs := evaluate(t, ruleSets[i], parseDoc(t, `{"a":`+number+`}`)); (len(errs) == 0) != (number == "1") {
					t.Errorf("Evaluate(a: %s) = %v, want an error only for 0", number, errs)
				}
			}
		})
	}
	wait.Wait()
	if got := compiler.Shared(); got != 1 {
		t.Errorf("compilers share %d programs of one rule, want 1", got)
	}
	runtime.KeepAlive(ruleSets)
	clear(ruleSets)
	runtime.GC()
	if got := compiler.Shared(); got != 0 {
		t.Errorf("got %d programs after their last use, want 0", got)
	}
}

// TestSchemaWithoutRulesCompilesToNil checks that a schema without rules needs no evaluation.
func TestSchemaWithoutRulesCompilesToNil(t *testing.T) {
	compiled := rules.NewCompiler().Compile(parseSchema(t, `{"type":"object"}`), nil)
	if compiled != nil {
		t.Errorf("Compile(schema without rules) = %v, want nil", compiled)
	}
	if errs := compiled.Evaluate(t.Context(), nil, nil, nil, nil); errs != nil {
		t.Errorf("Evaluate of nil Rules = %v, want nil", errs)
	}
}

package rules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// parseSchema decodes a schema that must be valid JSON.
func parseSchema(t testing.TB, text string) *v1.JSONSchemaProps {
	t.Helper()
	var s v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &s
}

// parseDoc parses a document that must be valid JSON.
func parseDoc(t testing.TB, text string) *tape.Doc {
	t.Helper()
	d, err := tape.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

// evaluate checks a document as a create, without warnings or reports of costs.
func evaluate(t testing.TB, r *rules.Rules, d *tape.Doc) field.ErrorList {
	t.Helper()
	return r.Evaluate(t.Context(), d, nil, nil, nil)
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
	d := parseDoc(t, objectOfAllTypes)
	for rule, want := range tests {
		t.Run(rule, func(t *testing.T) {
			quoted, _ := json.Marshal(rule)
			s := parseSchema(t, fmt.Sprintf(schemaOfAllTypes, quoted))
			if errs := compiler.CheckSchema(rules.SchemaCheck{Schema: s, Path: field.NewPath("s")}); len(errs) > 0 {
				t.Fatal(errs)
			}
			r := compiler.Compile(s, nil)
			var got string
			if errs := evaluate(t, r, d); len(errs) > 0 {
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
		"a list of anything": {
			schema: `{"type":"array","items":{"x-kubernetes-preserve-unknown-fields":true},"x-kubernetes-validations":[{"rule":"true"}]}`,
			doc:    `[1]`,
			want:   1,
		},
		"null": {schema: `{"type":"array","x-kubernetes-validations":[{"rule":"true"}]}`, doc: `null`, want: 0},
		"items of an object": {
			schema: `{"type":"object","items":{"type":"object","x-kubernetes-validations":[{"rule":"true"}]}}`,
			doc:    `{"a":1}`,
			want:   0,
		},
		"items of a list": {
			schema: `{"type":"array","items":{"x-kubernetes-validations":[{"rule":"true"}]}}`,
			doc:    `[1]`,
			want:   1,
		},
		"a map of anything": {
			schema: `{"type":"object","additionalProperties":{"x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"true"}]}}`,
			doc:    `{"a":1,"b":2}`,
			want:   2,
		},
		"a property": {
			schema: `{"type":"object","properties":{"a":{"x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"true"}]}}}`,
			doc:    `{"a":1}`,
			want:   0,
		},
	}
	for name, tt := range tests {
		errs := evaluate(t, compiler.Compile(parseSchema(t, tt.schema), nil), parseDoc(t, tt.doc))
		if len(errs) != tt.want {
			t.Errorf("%s: got errors %v, want %d", name, errs, tt.want)
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
	wrong := parseDoc(
		t,
		`{"set":"x","keyed":{},"map":[],"o":1,"ios":true,"num":"x","pod":1,"date":"x","time":"x","took":"x","bytes":"!","empty":1,"plain":[1.5]}`,
	)
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
		s := parseSchema(t, fmt.Sprintf(schemaOfAllTypes, quoted))
		var got string
		if errs := evaluate(t, compiler.Compile(s, nil), wrong); len(errs) > 0 {
			got = errs[0].Detail
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want it to begin with %q", rule, got, want)
		}
	}
}

// TestEvaluationStopsAtCostBudget checks that rules that cost too much, and rules of a canceled
// request, end with one error.
func TestEvaluationStopsAtCostBudget(t *testing.T) {
	// Searching for 400 bytes costs four units per byte of the text.
	part := strings.Repeat("b", 400)
	s := parseSchema(
		t,
		`{"type":"object","properties":{"l":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"!self.contains('`+part+`')","message":"long"}]}},
		"m":{"type":"string","x-kubernetes-validations":[{"rule":"self != 'x' + self","messageExpression":"'%s'.format([self.contains('`+part+`')])"},{"rule":"self == 'y'","messageExpression":"'%s'.format([self.contains('`+part+`')])"}]},
		"n":{"type":"array","items":{"type":"integer"},"x-kubernetes-validations":[{"rule":"self.all(x, x > 0)"}]}}}`,
	)
	r := compiler.Compile(s, nil)
	text := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	const outOfBudget = "validation failed due to running out of cost budget, no further validation rules will be run"
	tests := map[string]string{
		`{"l":[` + text(300_000) + `,"` + part + `"]}`: "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: long",
		`{"l":` + list(text(200_000), 14) + `}`:        outOfBudget,
		`{"m":` + text(300_000) + `}`:                  `no further validation rules will be run due to call cost exceeds limit for messageExpression: "'%s'.format([self.contains('` + part + `')])"`,
	}
	for text, want := range tests {
		errs := evaluate(t, r, parseDoc(t, text))
		if len(errs) != 1 || errs[0].Detail != want {
			t.Errorf("%.20s: got %v\nwant %s", text, errs, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if errs := r.Evaluate(ended, parseDoc(t, `{"n":`+list("1", 1000)+`}`), nil, nil, nil); len(errs) != 1 ||
		!strings.HasPrefix(errs[0].Detail, "operation interrupted evaluating rule") {
		t.Errorf("canceled context: got %v, want one interrupted rule", errs)
	}
}

// TestExpensiveRulesAreReported checks that rules that cost much are reported, also for short
// values.
func TestExpensiveRulesAreReported(t *testing.T) {
	s := parseSchema(t, `{"type":"object","properties":{"l":{"type":"array","items":{"type":"integer"},"x-kubernetes-validations":[
		{"rule":"self.all(x, self.all(y, x + y > 0))"},{"rule":"self.all(x, x > 0)"}]}}}`)
	r := compiler.Compile(s, nil)
	for n, want := range map[int]int{3: 0, 200: 1} {
		reports := 0
		errs := r.Evaluate(
			t.Context(),
			parseDoc(t, `{"l":[`+strings.TrimSuffix(strings.Repeat("1,", n), ",")+`]}`),
			nil,
			nil,
			func() { reports++ },
		)
		if len(errs) > 0 {
			t.Errorf("%d values: got errors %v, want none", n, errs)
		}
		if reports != want {
			t.Errorf("%d values: got %d reports, want %d", n, reports, want)
		}
	}
}

// TestEqualRulesShareOneProgram checks that concurrent compilations share a program while it is in
// use.
func TestEqualRulesShareOneProgram(t *testing.T) {
	s := parseSchema(t, `{"type":"object","properties":{"a":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0"}]}}}`)
	c := rules.NewCompiler()
	var wait sync.WaitGroup
	all := make([]*rules.Rules, 8)
	for i := range all {
		wait.Go(func() {
			all[i] = c.Compile(s, nil)
			for _, n := range []string{"0", "1"} {
				if errs := evaluate(t, all[i], parseDoc(t, `{"a":`+n+`}`)); (len(errs) == 0) != (n == "1") {
					t.Errorf("Evaluate(a: %s) = %v, want an error only for 0", n, errs)
				}
			}
		})
	}
	wait.Wait()
	if got := c.Shared(); got != 1 {
		t.Errorf("compilers share %d programs of one rule, want 1", got)
	}
	runtime.KeepAlive(all)
	clear(all)
	runtime.GC()
	if got := c.Shared(); got != 0 {
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

// TestCheckDefaultEvaluatesRulesOfDefaults checks that defaults that break a rule are reported.
func TestCheckDefaultEvaluatesRulesOfDefaults(t *testing.T) {
	s := parseSchema(
		t,
		`{"type":"object","properties":{"a":{"type":"string","maxLength":9,"default":"old","x-kubernetes-validations":[
		{"rule":"oldSelf.hasValue() || self == 'new'","optionalOldSelf":true,"message":"begin with new"},{"rule":"self == oldSelf"}]},
		"b":{"type":"array","default":[{"k":"x","v":1}],"maxItems":3,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"type":"string"},"v":{"type":"integer","x-kubernetes-validations":[{"rule":"self == oldSelf"},{"rule":"self > 1"}]}}}}}}`,
	)
	errs := schema.CheckDefaults(t.Context(), field.NewPath("x"), s, true, compiler.CheckDefault)
	var got []string
	for _, e := range errs {
		got = append(got, e.Error())
	}
	want := []string{
		`x.properties[a].default: Invalid value: "string": begin with new`,
		`x.properties[b].default[0].v: Invalid value: "integer": failed rule: self > 1`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("CheckDefaults = %q, want %q", got, want)
	}
	if _, left := compiler.CheckDefault(t.Context(), nil, parseSchema(t, `{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0"}]}`), false, []byte("1"), 1); left >= 0 {
		t.Errorf("CheckDefault with a budget of 1: got remaining budget %d, want less than 0", left)
	}
}

// TestUnchangedValuesOnlyWarn checks that a rule that fails for an unchanged value gives a warning.
// It gives an error if the value or the rule depends on a change.
func TestUnchangedValuesOnlyWarn(t *testing.T) {
	s := parseSchema(
		t,
		`{"type":"object","x-kubernetes-validations":[{"rule":"self.kind == 'K'"}],"properties":{"spec":{"type":"object","x-kubernetes-validations":[{"rule":"self.n > 0","message":"spec"}],"properties":{
		"n":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0","message":"n"},{"rule":"self >= oldSelf || self > 0","message":"transition"}]},
		"l":{"type":"array","maxItems":5,"items":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0","message":"item"}]}},"x":{"type":"string"}}}}}`,
	)
	p, err := schema.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	r := compiler.Compile(s, p)
	tests := []struct{ old, new, errors, warnings string }{
		{
			old:      `{"kind":"X","spec":{"n":0}}`,
			new:      `{"kind":"X","spec":{"n":0}}`,
			errors:   "failed rule: self.kind == 'K'",
			warnings: "spec,n",
		},
		{old: `{"kind":"K","spec":{"n":0}}`, new: `{"kind":"K","spec":{"n":0,"x":"y"}}`, errors: "spec", warnings: "n"},
		{old: `{"kind":"K","spec":{"n":-1}}`, new: `{"kind":"K","spec":{"n":0}}`, errors: "spec,n", warnings: ""},
		{old: `{"kind":"K","spec":{"n":0}}`, new: `{"kind":"K","spec":{"n":-1}}`, errors: "spec,n,transition", warnings: ""},
		{old: `{"kind":"K","spec":{"n":1,"l":[0]}}`, new: `{"kind":"K","spec":{"n":2,"l":[0]}}`, errors: "", warnings: "item"},
		{old: `{"kind":"K","spec":{"n":1,"l":[0]}}`, new: `{"kind":"K","spec":{"n":1,"l":[0,1]}}`, errors: "item", warnings: ""},
	}
	for _, tt := range tests {
		var warnings, errs []string
		for _, e := range r.Evaluate(t.Context(), parseDoc(t, tt.new), parseDoc(t, tt.old), func(w string) { warnings = append(warnings, w[strings.LastIndex(w, ": ")+2:]) }, nil) {
			errs = append(errs, e.Detail)
		}
		if strings.Join(errs, ",") != tt.errors || strings.Join(warnings, ",") != tt.warnings {
			t.Errorf("%s after %s: got %q, %q, want %q, %q", tt.new, tt.old, errs, warnings, tt.errors, tt.warnings)
		}
	}
}

// TestRatchetingDisabled checks that unchanged values are reported, and that
// rules with optionalOldSelf wait for an old value.
func TestRatchetingDisabled(t *testing.T) {
	s := parseSchema(t, `{"type":"object","properties":{
		"n":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0","message":"n"}]},
		"o":{"type":"integer","x-kubernetes-validations":[{"rule":"oldSelf.hasValue()","optionalOldSelf":true,"message":"o"}]}}}`)
	p, err := schema.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	for off, want := range map[bool]string{false: "o", true: "n"} {
		c := rules.NewCompiler()
		c.NoRatcheting = off
		var errs []string
		for _, e := range c.Compile(s, p).Evaluate(t.Context(), parseDoc(t, `{"n":0,"o":1}`), parseDoc(t, `{"n":0}`), nil, nil) {
			errs = append(errs, e.Detail)
		}
		if got := strings.Join(errs, ","); got != want {
			t.Errorf("NoRatcheting %t: got %q, want %q", off, got, want)
		}
	}
}

// TestManyToleratedItems checks that invalid items of an unchanged list are tolerated after one
// comparison of the list. A comparison per item would take longer than the test's timeout.
func TestManyToleratedItems(t *testing.T) {
	s := parseSchema(
		t,
		`{"type":"object","properties":{"n":{"type":"integer"},"l":{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"x-kubernetes-validations":[{"rule":"self.a > 1"}]}}}}`,
	)
	p, err := schema.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	r := compiler.Compile(s, p)
	const many = 100_000
	list := func(item string) string { return `{"l":[` + strings.Repeat(item+",", many-1) + item + `],"n":` }
	for _, tt := range []struct {
		item                 string
		wantErrs, wantWarned int
	}{
		{item: `{"b":2,"a":1}`, wantErrs: 0, wantWarned: many},
		{item: `{"b":3,"a":1}`, wantErrs: many, wantWarned: 0},
	} {
		warnings := 0
		errs := r.Evaluate(
			t.Context(),
			parseDoc(t, list(`{"a":1,"b":2}`)+"1}"),
			parseDoc(t, list(tt.item)+"2}"),
			func(string) { warnings++ },
			nil,
		)
		if len(errs) != tt.wantErrs {
			t.Errorf("after %s: got %d errors, want %d", tt.item, len(errs), tt.wantErrs)
		}
		if warnings != tt.wantWarned {
			t.Errorf("after %s: got %d warnings, want %d", tt.item, warnings, tt.wantWarned)
		}
	}
}

// TestFieldsOfManyProperties checks that fields are looked up. A scan of all properties per field
// would take longer than the test's timeout.
func TestFieldsOfManyProperties(t *testing.T) {
	const many, items, times = 40_000, 100_000, 10
	var properties strings.Builder
	for i := range many {
		fmt.Fprintf(&properties, `"p%06d":{"type":"integer"},`, i)
	}
	rule := `{"rule":"self.l.all(x, self.p` + fmt.Sprintf("%06d", many-1) + ` > x || has(self.odd__dash__name))"},`
	rule = strings.Repeat(rule, times)
	s := parseSchema(
		t,
		`{"type":"object","properties":{`+properties.String()+`"odd-name":{"type":"integer"},"l":{"type":"array","items":{"type":"integer"}}},"x-kubernetes-validations":[`+strings.TrimSuffix(
			rule,
			",",
		)+`]}`,
	)
	p, err := schema.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	r := compiler.Compile(s, p)
	list := `"l":[` + strings.Repeat("1,", items-1) + `1]`
	for text, want := range map[string]int{fmt.Sprintf(`{"p%06d":2,%s}`, many-1, list): 0, fmt.Sprintf(`{"p%06d":1,%s}`, many-1, list): times} {
		if errs := evaluate(t, r, parseDoc(t, text)); len(errs) != want {
			t.Errorf("%.20s: got %d errors, want %d: %.300s", text, len(errs), want, fmt.Sprint(errs))
		}
	}
}

// TestCheckSchemaRejectsExpensiveRules checks that the estimated cost of a rule is limited, unless
// AllowExpensive is set.
func TestCheckSchemaRejectsExpensiveRules(t *testing.T) {
	// The error of an exceeded limit shows the cost. The factor refers to the limit of ten million.
	tests := map[string]string{
		`{"type":"array","maxItems":4000,"items":{"type":"integer"},"x-kubernetes-validations":[{"rule":"self.all(x, self.all(y, x == y))"}]}`:                             "8.0x",
		`{"type":"array","maxItems":2000,"items":{"type":"string","maxLength":50},"x-kubernetes-validations":[{"rule":"self.all(x, self.exists(y, x == y))"}]}`:            "10.4x",
		`{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self.contains('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')"}]}}`:                         "more than 100x",
		`{"type":"object","additionalProperties":{"type":"string"},"x-kubernetes-validations":[{"rule":"self.all(k, self[k].matches('a*b'))"}]}`:                           "more than 100x",
		`{"type":"object","maxProperties":10,"additionalProperties":{"type":"string","maxLength":10,"x-kubernetes-validations":[{"rule":"self.find('[a-z]+') == self"}]}}`: "",
		`{"type":"array","maxItems":-5,"items":{"type":"string","x-kubernetes-validations":[{"rule":"self.matches('a*b')"}]}}`:                                             "",
	}
	for text, want := range tests {
		s := parseSchema(t, `{"type":"object","properties":{"v":`+text+`}}`)
		errs := compiler.CheckSchema(rules.SchemaCheck{Schema: s, Path: field.NewPath("s")})
		if want == "" {
			if len(errs) > 0 {
				t.Errorf("%s: CheckSchema = %v, want no error", text, errs)
			}
			continue
		}
		if len(errs) == 0 || !strings.Contains(errs[0].Detail, want) {
			t.Errorf("%s: CheckSchema = %v, want an error with %q", text, errs, want)
		}
		for _, e := range compiler.CheckSchema(rules.SchemaCheck{Schema: s, Path: field.NewPath("s"), AllowExpensive: true}) {
			if strings.HasPrefix(e.Detail, "estimated") {
				t.Errorf("%s: CheckSchema with AllowExpensive = %v, want no error about the cost", text, e)
			}
		}
	}
}

// TestRulesAboveInvalidSchemasAreNotChecked checks that a known error suppresses the errors of
// rules of the same and outer schemas.
func TestRulesAboveInvalidSchemasAreNotChecked(t *testing.T) {
	s := parseSchema(
		t,
		`{"type":"object","x-kubernetes-validations":[{"rule":"self.x"}],"properties":{"a":{"type":"integer","x-kubernetes-validations":[{"rule":"self.y"}]},"ab":{"type":"integer","x-kubernetes-validations":[{"rule":"self.z"}]}}}`,
	)
	at := field.NewPath("s")
	errs := compiler.CheckSchema(rules.SchemaCheck{
		Schema:      s,
		Path:        at,
		KnownErrors: field.ErrorList{field.Required(at.Child("properties").Key("a").Child("type"), "")},
	})
	if want := "s.properties[ab].x-kubernetes-validations[0].rule"; len(errs) != 1 || errs[0].Field != want {
		t.Errorf("CheckSchema = %v, want one error of %s", errs, want)
	}
}

// TestValidFieldPathResolvesProperties checks the field that a path names, and the errors of
// invalid paths.
func TestValidFieldPathResolvesProperties(t *testing.T) {
	s := parseSchema(
		t,
		`{"type":"object","properties":{"a":{"type":"object","properties":{"b.c":{"type":"string"},"it's":{"type":"string"}}},"m":{"type":"object","additionalProperties":{"type":"object","properties":{"x":{"type":"string"}}}},"s":{"type":"string"}}}`,
	)
	tests := map[string]string{
		".a":           "a",
		".a['b.c']":    "a.b.c",
		"['a']['b.c']": "a.b.c",
		".m.k":         "m[k]",
		".m['k'].x":    "m[k].x",
		`.a['it\'s']`:  "a.it's",
		"":             "<nil>",
		"a":            "expected [ or . but got: a",
		".x":           "does not refer to a valid field",
		".s.x":         "does not refer to a valid field",
		".a[":          "unexpected end of JSON path",
		".a['b.c'":     "unexpected end of JSON path", ".a[b]": "expected single quoted string but got b",
		`.a['\q']`:  `invalid string literal: invalid escape char \q`,
		".a['b.c'x": "expected ] but got x", ".": "unexpected end of JSON path", ".a['": "expected single quoted string but got '",
	}
	for path, want := range tests {
		at, _, err := rules.ValidFieldPath(path, s, true)
		got := at.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("ValidFieldPath(%q) = %q, want %q", path, got, want)
		}
	}
	const bracketed, want = ".a['b.c']", "array notation is not allowed"
	if _, _, err := rules.ValidFieldPath(bracketed, s, false); err == nil || err.Error() != want {
		t.Errorf("ValidFieldPath(%q) without brackets = %v, want %s", bracketed, err, want)
	}
}

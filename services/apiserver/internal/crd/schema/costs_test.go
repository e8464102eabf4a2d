package schema

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Enums of many values are looked up, and hold what those of few do.
func TestEnumsOfManyValues(t *testing.T) {
	few := []string{`"a"`, `"97"`, `97`, `98`, `2`, `2.5`, `-0.0`, `1e3`, `true`, `null`, `{"x":1}`, `["y"]`, `"\u00e9"`, `9007199254740993`}
	many := slices.Clone(few)
	for i := range manyValues {
		many = append(many, fmt.Sprintf("%q", fmt.Sprint("other", i)))
	}
	enum := func(values []string) *Program {
		return program(t, `{"x-kubernetes-preserve-unknown-fields":true,"enum":[`+strings.Join(values, ",")+`]}`)
	}
	p, q := enum(few), enum(many)
	if p.nodes[root].listed != nil || q.nodes[root].listed == nil {
		t.Fatal("nothing to compare")
	}
	for _, v := range append(slices.Clone(few), `"b"`, `"98"`, `99`, `2.0`, `2.9`, `0`, `1000`, `1000.5`, `false`, `{"x":2}`, `{}`, `[]`, `"é"`, `9007199254740992`, `""`) {
		d := parse(t, []byte(v))
		of := func(p *Program) bool {
			c := checker{Comparer: Comparer{program: p, doc: d}}
			return c.isOneOf(&p.nodes[root], tape.Root)
		}
		if is, want := of(q), of(p); is != want {
			t.Errorf("%s is one of many: %t, want %t", v, is, want)
		}
	}
}

// Patterns that take long are told of before they are matched, and what would take very long is
// refused.
func TestCostlyPatterns(t *testing.T) {
	p := program(t, `{"type":"object","properties":{"a":{"type":"string","pattern":"^(x?){1000}y?$"},"b":{"type":"string","pattern":"^x*$"}}}`)
	p.Check(parse(t, []byte(`{"a":"","b":""}`)), nil, true, nil) // they are compiled
	for name, c := range map[string]struct {
		a, b  int // how long they are
		told  int
		wrong string
	}{
		"short":                   {a: 10, b: 10},
		"long, for a pattern":     {a: 1000, b: 10, told: 1},
		"long, for another":       {a: 10, b: 20_000},
		"both":                    {a: 1000, b: 100_000, told: 1},
		"longer than can be told": {a: 300_000, b: 10, wrong: "which takes too long to tell"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := json.Marshal(map[string]string{"a": strings.Repeat("x", c.a), "b": strings.Repeat("x", c.b)})
			if err != nil {
				t.Fatal(err)
			}
			told := 0
			report := p.Check(parse(t, doc), nil, true, func() { told++ })
			if told != c.told {
				t.Errorf("told %d times, want %d", told, c.told)
			}
			if got := fmt.Sprint(report.Schema); (len(report.Schema) > 0) != (c.wrong != "") || !strings.Contains(got, c.wrong) {
				t.Errorf("got %.300s", got)
			}
		})
	}
}

// Branches in branches take no longer than they are deep, many for many values are told of before, and
// too many are refused.
func TestCostlyBranches(t *testing.T) {
	nested := func(keyword string, depth int) string {
		s := `{"maximum":0}`
		for range depth {
			s = `{"` + keyword + `":[` + s + `]}`
		}
		return s
	}
	wide := func(n int) string {
		return `{"type":"array","items":{"type":"integer","anyOf":[` + strings.Repeat(`{"maximum":0},`, n-1) + `{"maximum":0}]}}`
	}
	ones := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	for name, c := range map[string]struct {
		schema, value string
		told          int
		wrong         string
	}{
		"a hundred in each other":               {nested("anyOf", 100), "1", 0, "must validate at least one schema (anyOf)"},
		"a hundred in each other, of which one": {nested("oneOf", 100), "1", 0, "must validate one and only one schema (oneOf)"},
		"few for few":                           {wide(3), ones(100), 0, "should be less than or equal to 0"},
		"many for many":                         {wide(300), ones(1000), 1, "should be less than or equal to 0"},
		"more for more than can be looked at":   {wide(3000), ones(5000), 1, "than can be looked at"},
	} {
		t.Run(name, func(t *testing.T) {
			told := 0
			report := little(program(t, `{"type":"object","properties":{"x":`+c.schema+`}}`)).Check(parse(t, []byte(`{"x":`+c.value+`}`)), nil, true, func() { told++ })
			if told != c.told {
				t.Errorf("told %d times, want %d", told, c.told)
			}
			if got := fmt.Sprint(report.Schema); !strings.Contains(got, c.wrong) {
				t.Errorf("got %.300s", got)
			}
		})
	}
}

// patterned is the schema of so many strings with patterns that take long to be compiled, and an object that
// they match.
func patterned(n int, more string) (schema, object string) {
	var properties, members []string
	for i := range n {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string","pattern":"^(x?){1000}%d$"%s}`, i, i, strings.ReplaceAll(more, "$", fmt.Sprint(i))))
		members = append(members, fmt.Sprintf(`"p%d":"%d"`, i, i))
	}
	return `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`, "{" + strings.Join(members, ",") + "}"
}

// Compiling patterns counts, and no more are compiled for an object than can be in some seconds.
func TestPatternsThatTakeLongToCompile(t *testing.T) {
	const many = 1500
	schema, object := patterned(many, "")
	told := 0
	report := program(t, schema).Check(parse(t, []byte(object)), nil, true, func() { told++ })
	if got := fmt.Sprint(report.Schema); told != 1 || !strings.Contains(got, "than can be looked at") {
		t.Errorf("told %d times, %.300s", told, got)
	}
	schema, _ = patterned(many, `,"default":"$"`)
	var s v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	errs := CheckDefaults(t.Context(), nil, &s, true, nil)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "than can be looked at") {
		t.Errorf("got %.300s", fmt.Sprint(errs))
	}
}

// Patterns for which there is no room are compiled each time, and the room of a program that is gone is free.
func TestRoomForPatterns(t *testing.T) {
	schema, object := patterned(20, "")
	var s v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	room := NewRoom()
	all := room.left.Load()
	check := func() (kept int) {
		p, err := room.Compile(&s)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if report := p.Check(parse(t, []byte(object)), nil, true, nil); len(report.Schema) > 0 {
				t.Errorf("got %.300s", fmt.Sprint(report.Schema))
			}
		}
		for i := range p.nodes {
			if text := p.nodes[i].text; text != nil && text.pattern.kept.Load() != nil {
				kept++
			}
		}
		return kept
	}
	if n := check(); n != 20 {
		t.Errorf("%d are kept", n)
	}
	for i := 0; room.left.Load() != all; i++ { // until the program has been cleaned up after
		if i == 1000 {
			t.Fatal("the room is not given back")
		}
		runtime.GC()
		runtime.Gosched()
	}
	room.left.Store(1_000_000)
	if n := check(); n == 0 || n > 10 {
		t.Errorf("%d are kept", n)
	}
}

// Of many properties that are required each is found, and told where it is missing.
func TestManyRequiredProperties(t *testing.T) {
	const many = 20_000
	var properties, required, members []string
	for i := range many {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string"}`, i))
		required = append(required, fmt.Sprintf(`"p%d"`, many-1-i))
		members = append(members, fmt.Sprintf(`"p%d":""`, i))
	}
	p := program(t, `{"type":"object","properties":{`+strings.Join(properties, ",")+`},"required":["other",`+strings.Join(required, ",")+`]}`)
	report := p.Check(parse(t, []byte("{"+strings.Join(members, ",")+"}")), nil, true, nil)
	if len(report.Schema) != 1 || report.Schema[0].Field != "other" {
		t.Errorf("got %.300s", fmt.Sprint(report.Schema))
	}
	members[7] = `"other":""`
	report = p.Check(parse(t, []byte("{"+strings.Join(members, ",")+"}")), nil, true, nil)
	if len(report.Schema) != 1 || report.Schema[0].Field != "p7" {
		t.Errorf("got %.300s", fmt.Sprint(report.Schema))
	}
}

// What is wrong deep in an object has all around it compared with what it was, once: a long list beside it that is
// looked at for each level does not end in a test's time.
func TestDeepObjectsAreComparedOnce(t *testing.T) {
	const depth, many = 400, 50_000
	schema := `{"type":"object","properties":{"z":{"type":"integer","maximum":5},
		"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"type":"integer"}}}}}}`
	var items []string
	for i := range many {
		items = append(items, fmt.Sprintf(`{"k":%d}`, i))
	}
	object := func(z int) string { return fmt.Sprintf(`{"l":[%s],"z":%d}`, strings.Join(items, ","), z) }
	now, before := object(7), object(6)
	for range depth {
		schema = `{"type":"object","properties":{"o":` + schema + `}}`
		now, before = `{"o":`+now+`}`, `{"o":`+before+`}`
	}
	report := program(t, schema).Check(parse(t, []byte(now)), parse(t, []byte(before)), true, nil)
	if len(report.Schema) != 1 || !strings.HasSuffix(report.Schema[0].Field, "o.z") {
		t.Errorf("got %.300s", fmt.Sprint(report.Schema))
	}
}

// Of an object's many properties those with defaults are looked at for each of many objects, not all of them, which
// takes minutes.
func TestDefaultsAmongManyProperties(t *testing.T) {
	const many, objects = 100_000, 60_000
	p := program(t, `{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{`+manyProperties(many)+`,"z":{"type":"integer","default":1}}}}}}`)
	shaped, err := p.Shape(parse(t, []byte(`{"l":[`+strings.Repeat(`{},`, objects-1)+`{"p000007":""}]}`)), ShapeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"l":[` + strings.Repeat(`{"z":1},`, objects-1) + `{"p000007":"","z":1}]}`; string(shaped.Doc.Raw()) != want {
		t.Errorf("got %.100s, want %.100s", shaped.Doc.Raw(), want)
	}
}

// Many properties that are missing in each of many objects are told of before, and no more are looked for than can be in
// some seconds.
func TestManyMissingProperties(t *testing.T) {
	for name, c := range map[string]struct {
		many, objects, told int
		wrong               string
	}{
		"few in few":                       {100, 100, 0, `[l[0].p0: Required value`},
		"many in many":                     {2_000, 200, 1, `[l[0].p0: Required value`},
		"more in more than can be told of": {4_000, 2_000, 1, "than can be looked at"},
	} {
		t.Run(name, func(t *testing.T) {
			var required []string
			for i := range c.many {
				required = append(required, fmt.Sprintf(`"p%d"`, i))
			}
			p := little(program(t, `{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","required":[`+strings.Join(required, ",")+`]}}}}`))
			told := 0
			report := p.Check(parse(t, []byte(`{"l":[`+strings.Repeat(`{},`, c.objects-1)+`{}]}`)), nil, true, func() { told++ })
			if got := fmt.Sprint(report.Schema); told != c.told || !strings.Contains(got, c.wrong) {
				t.Errorf("told %d times, %.300s", told, got)
			}
		})
	}
}

func manyProperties(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"p%06d":{"type":"string"}`, i))
	}
	return strings.Join(all, ",")
}

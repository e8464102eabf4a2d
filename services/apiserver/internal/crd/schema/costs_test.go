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

// TestLargeEnumAcceptsSameValuesAsSmallEnum checks that an enum with many values is a hash lookup, and accepts the same values
// as a small one.
func TestLargeEnumAcceptsSameValuesAsSmallEnum(t *testing.T) {
	few := []string{
		`"a"`,
		`"97"`,
		`97`,
		`98`,
		`2`,
		`2.5`,
		`-0.0`,
		`1e3`,
		`true`,
		`null`,
		`{"x":1}`,
		`["y"]`,
		`"\u00e9"`,
		`9007199254740993`,
	}
	many := slices.Clone(few)
	for i := range minIndexedValues {
		many = append(many, fmt.Sprintf("%q", fmt.Sprint("other", i)))
	}
	enum := func(values []string) *Program {
		return compileText(t, `{"x-kubernetes-preserve-unknown-fields":true,"enum":[`+strings.Join(values, ",")+`]}`)
	}
	small, large := enum(few), enum(many)
	if small.nodes[Root].enumIndex != nil || large.nodes[Root].enumIndex == nil {
		t.Fatal("got indexes of enums in both programs, or in none, want one of the large enum only")
	}
	for _, value := range append(slices.Clone(few), `"b"`, `"98"`, `99`, `2.0`, `2.9`, `0`, `1000`, `1000.5`, `false`, `{"x":2}`, `{}`, `[]`, `"é"`, `9007199254740992`, `""`) {
		doc := parseDoc(t, []byte(value))
		accepts := func(small *Program) bool {
			c := checker{Comparer: Comparer{program: small, doc: doc}}
			return c.isInEnum(&small.nodes[Root], tape.Root)
		}
		if got, want := accepts(large), accepts(small); got != want {
			t.Errorf("%s: got %t, want %t", value, got, want)
		}
	}
}

// TestExpensivePatternsAreReportedOrRejected checks that expensive matches are reported before they run, and very
// expensive ones are rejected.
func TestExpensivePatternsAreReportedOrRejected(t *testing.T) {
	program := compileText(
		t,
		`{"type":"object","properties":{"a":{"type":"string","pattern":"^(x?){1000}y?$"},"b":{"type":"string","pattern":"^x*$"}}}`,
	)
	program.Check(parseDoc(t, []byte(`{"a":"","b":""}`)), nil, ratchets, nil) // compile the patterns
	for name, test := range map[string]struct {
		a, b        int // lengths of the values
		wantReports int
		wantErr     string // part of an error; empty if none is wanted
	}{
		"short":                 {a: 10, b: 10},
		"long, for a pattern":   {a: 1000, b: 10, wantReports: 1},
		"long, for another":     {a: 10, b: 20_000},
		"both":                  {a: 1000, b: 100_000, wantReports: 1},
		"longer than the limit": {a: 300_000, b: 10, wantErr: "which is too expensive to evaluate"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := json.Marshal(map[string]string{"a": strings.Repeat("x", test.a), "b": strings.Repeat("x", test.b)})
			if err != nil {
				t.Fatal(err)
			}
			reports := 0
			report := program.Check(parseDoc(t, doc), nil, ratchets, func() { reports++ })
			if reports != test.wantReports {
				t.Errorf("got %d reports, want %d", reports, test.wantReports)
			}
			if got := fmt.Sprint(report.Schema); (len(report.Schema) > 0) != (test.wantErr != "") || !strings.Contains(got, test.wantErr) {
				t.Errorf("got errors %.300s, want one that contains %q, or none if that is empty", got, test.wantErr)
			}
		})
	}
}

// TestCostOfBranchesIsLinearAndBounded checks that the cost of nested branches is linear in their depth. Many
// branches for many values are reported before they run, and too many are rejected.
func TestCostOfBranchesIsLinearAndBounded(t *testing.T) {
	nested := func(keyword string, depth int) string {
		branches := `{"maximum":0}`
		for range depth {
			branches = `{"` + keyword + `":[` + branches + `]}`
		}
		return branches
	}
	wide := func(count int) string {
		return `{"type":"array","items":{"type":"integer","anyOf":[` + strings.Repeat(`{"maximum":0},`, count-1) + `{"maximum":0}]}}`
	}
	ones := func(count int) string { return "[" + strings.Repeat("1,", count-1) + "1]" }
	for name, test := range map[string]struct {
		schema, value string
		wantReports   int
		wantErr       string // part of an error
	}{
		"a hundred nested in anyOf":  {schema: nested("anyOf", 100), value: "1", wantReports: 0, wantErr: "must validate at least one schema (anyOf)"},
		"a hundred nested in oneOf":  {schema: nested("oneOf", 100), value: "1", wantReports: 0, wantErr: "must validate one and only one schema (oneOf)"},
		"few for few":                {schema: wide(3), value: ones(100), wantReports: 0, wantErr: "should be less than or equal to 0"},
		"many for many":              {schema: wide(300), value: ones(1000), wantReports: 1, wantErr: "should be less than or equal to 0"},
		"more values than the limit": {schema: wide(3000), value: ones(5000), wantReports: 1, wantErr: "too many values times schemas"},
	} {
		t.Run(name, func(t *testing.T) {
			reports := 0
			program := withSmallLimit(compileText(t, `{"type":"object","properties":{"x":`+test.schema+`}}`))
			report := program.Check(parseDoc(t, []byte(`{"x":`+test.value+`}`)), nil, ratchets, func() { reports++ })
			if reports != test.wantReports {
				t.Errorf("got %d reports, want %d", reports, test.wantReports)
			}
			if got := fmt.Sprint(report.Schema); !strings.Contains(got, test.wantErr) {
				t.Errorf("got errors %.300s, want one that contains %q, or none if that is empty", got, test.wantErr)
			}
		})
	}
}

// schemaWithSlowPatterns returns a schema of count strings with patterns that are slow to compile, and
// an object that matches.
func schemaWithSlowPatterns(count int, more string) (schema, object string) {
	var properties, members []string
	for i := range count {
		properties = append(properties,
			fmt.Sprintf(`"p%d":{"type":"string","pattern":"^(x?){1000}%d$"%s}`, i, i, strings.ReplaceAll(more, "$", fmt.Sprint(i))))
		members = append(members, fmt.Sprintf(`"p%d":"%d"`, i, i))
	}
	return `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`, "{" + strings.Join(members, ",") + "}"
}

// TestCompilingPatternsCountsAsCost checks that compiling counts as cost, and the number of patterns
// compiled for one object is bounded.
func TestCompilingPatternsCountsAsCost(t *testing.T) {
	const many = 1500
	schema, object := schemaWithSlowPatterns(many, "")
	reports := 0
	report := compileText(t, schema).Check(parseDoc(t, []byte(object)), nil, ratchets, func() { reports++ })
	if got := fmt.Sprint(report.Schema); reports != 1 || !strings.Contains(got, "too many values times schemas") {
		t.Errorf("got %d reports, %.300s, want 1 that contains %q", reports, got, "too many values times schemas")
	}
	schema, _ = schemaWithSlowPatterns(many, `,"default":"$"`)
	var props v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(schema), &props); err != nil {
		t.Fatal(err)
	}
	errs := CheckDefaults(t.Context(), nil, &props, true, nil)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "too many values times schemas") {
		t.Errorf("CheckDefaults = %.300s, want one error about too many values times schemas", fmt.Sprint(errs))
	}
}

// TestParsingPatternsCountsAsCost checks that patterns that are expensive to parse count as costly
// before they are compiled, and that their number for one object is bounded.
func TestParsingPatternsCountsAsCost(t *testing.T) {
	var properties, members []string
	for i := range 50 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string","pattern":"(?i)[B-\\x{1e942}]|%[1]d"}`, i))
		members = append(members, fmt.Sprintf(`"p%d":"%d"`, i, i))
	}
	program := withSmallLimit(compileText(t, `{"type":"object","properties":{`+strings.Join(properties, ",")+`}}`))
	reports := 0
	report := program.Check(parseDoc(t, []byte("{"+strings.Join(members, ",")+"}")), nil, ratchets, func() { reports++ })
	if got := fmt.Sprint(report.Schema); reports != 1 || !strings.Contains(got, "which is too expensive to evaluate") {
		t.Errorf("got %d reports, %.300s, want 1 that contains %q", reports, got, "which is too expensive to evaluate")
	}
}

// TestPatternBudgetBoundsCache checks that patterns beyond the budget are not cached, and that a
// removed program releases its part of the budget.
func TestPatternBudgetBoundsCache(t *testing.T) {
	schema, object := schemaWithSlowPatterns(20, "")
	var props v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(schema), &props); err != nil {
		t.Fatal(err)
	}
	var budget PatternBudget
	cachedPatterns := func() (cached int) {
		program, err := budget.Compile(&props)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if report := program.Check(parseDoc(t, []byte(object)), nil, ratchets, nil); len(report.Schema) > 0 {
				t.Errorf("Check = %.300s, want no errors", fmt.Sprint(report.Schema))
			}
		}
		for i := range program.nodes {
			if text := program.nodes[i].text; text != nil && text.pattern.cached.Load() != nil {
				cached++
			}
		}
		return cached
	}
	if got := cachedPatterns(); got != 20 {
		t.Errorf("with an unused budget: got %d cached patterns, want 20", got)
	}
	for i := 0; budget.used.Load() != 0; i++ { // until the cleanup of the program has run
		if i == 1000 {
			t.Fatal("the budget was not released")
		}
		runtime.GC()
		runtime.Gosched()
	}
	budget.used.Store(maxPatternBytes - 1_000_000)
	if got := cachedPatterns(); got == 0 || got > 10 {
		t.Errorf("with a budget of 1 MB: got %d cached patterns, want 1 to 10", got)
	}
}

// TestEachMissingPropertyIsReported checks that each missing property is found and reported.
func TestEachMissingPropertyIsReported(t *testing.T) {
	const many = 20_000
	var properties, required, members []string
	for i := range many {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string"}`, i))
		required = append(required, fmt.Sprintf(`"p%d"`, many-1-i))
		members = append(members, fmt.Sprintf(`"p%d":""`, i))
	}
	program := compileText(t, `{"type":"object","properties":{`+strings.Join(properties, ",")+`},
		"required":["other",`+strings.Join(required, ",")+`]}`)
	report := program.Check(parseDoc(t, []byte("{"+strings.Join(members, ",")+"}")), nil, ratchets, nil)
	if len(report.Schema) != 1 || report.Schema[0].Field != "other" {
		t.Errorf("Check = %.300s, want one error of other", fmt.Sprint(report.Schema))
	}
	members[7] = `"other":""`
	report = program.Check(parseDoc(t, []byte("{"+strings.Join(members, ",")+"}")), nil, ratchets, nil)
	if len(report.Schema) != 1 || report.Schema[0].Field != "p7" {
		t.Errorf("Check = %.300s, want one error of p7", fmt.Sprint(report.Schema))
	}
}

// TestDeepObjectsAreComparedOnce checks that all ancestors of an error are compared with the old
// object once. A comparison per level would take longer than the test's timeout.
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
	report := compileText(t, schema).Check(parseDoc(t, []byte(now)), parseDoc(t, []byte(before)), ratchets, nil)
	if len(report.Schema) != 1 || !strings.HasSuffix(report.Schema[0].Field, "o.z") {
		t.Errorf("Check = %.300s, want one error of a field that ends in o.z", fmt.Sprint(report.Schema))
	}
}

// TestOnlyPropertiesWithDefaultsAreVisited checks that only properties with defaults are visited for each
// object. Visiting all of them would take minutes.
func TestOnlyPropertiesWithDefaultsAreVisited(t *testing.T) {
	const many, objects = 100_000, 60_000
	program := compileText(t, `{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{
		`+manyProperties(many)+`,"z":{"type":"integer","default":1}}}}}}`)
	doc := parseDoc(t, []byte(`{"l":[`+strings.Repeat(`{},`, objects-1)+`{"p000007":""}]}`))
	normalized, err := program.Normalize(doc, NormalizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"l":[` + strings.Repeat(`{"z":1},`, objects-1) + `{"p000007":"","z":1}]}`; string(normalized.Doc.Raw()) != want {
		t.Errorf("got %.100s, want %.100s", normalized.Doc.Raw(), want)
	}
}

// TestManyMissingPropertiesAreExpensive checks that many missing properties in many objects are reported as
// expensive, and their number is bounded.
func TestManyMissingPropertiesAreExpensive(t *testing.T) {
	for name, test := range map[string]struct {
		many, objects int // properties of each object, and objects
		wantReports   int
		wantErr       string // part of an error
	}{
		"few properties in few objects":   {many: 100, objects: 100, wantReports: 0, wantErr: `[l[0].p0: Required value`},
		"many properties in many objects": {many: 2_000, objects: 200, wantReports: 1, wantErr: `[l[0].p0: Required value`},
		"more than the limit":             {many: 4_000, objects: 2_000, wantReports: 1, wantErr: "too many values times schemas"},
	} {
		t.Run(name, func(t *testing.T) {
			var required []string
			for i := range test.many {
				required = append(required, fmt.Sprintf(`"p%d"`, i))
			}
			program := withSmallLimit(compileText(t, `{"type":"object","properties":{
				"l":{"type":"array","items":{"type":"object","required":[`+strings.Join(required, ",")+`]}}}}`))
			reports := 0
			report := program.Check(parseDoc(t, []byte(`{"l":[`+strings.Repeat(`{},`, test.objects-1)+`{}]}`)), nil, ratchets, func() { reports++ })
			if got := fmt.Sprint(report.Schema); reports != test.wantReports || !strings.Contains(got, test.wantErr) {
				t.Errorf("got %d reports, %.300s, want %d that contain %q", reports, got, test.wantReports, test.wantErr)
			}
		})
	}
}

// manyProperties returns the text of count properties of type string.
func manyProperties(count int) string {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf(`"p%06d":{"type":"string"}`, i))
	}
	return strings.Join(all, ",")
}

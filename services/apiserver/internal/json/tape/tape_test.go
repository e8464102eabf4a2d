package tape_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/json/tape"
)

func parse(t testing.TB, text string) *tape.Doc {
	t.Helper()
	doc, err := tape.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return doc
}

// texts holds valid and invalid documents for TestParseMatchesDecoder.
var texts = []string{
	`{}`, `[]`, `null`, ` {"a" : [ 1 , true,false , null ,"x"] } `, `{"a":{"b":{"c":[[],{}]}}}`,
	`"\u0061\ud83d\ude00\n\/\b\f\r\t\"\\"`, `"\ud800"`, `"\ud800\u0041"`, `"ä€😀"`, "\"\xff\"", `-0`, `1.0`, `1e3`, `9223372036854775807`,
	`9223372036854775808`, `-9223372036854775808`, `1e308`, `0.1`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2,"b":3,"a":4}`, `{"":""}`,
	"", " ", "{", "[", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `[1,]`, `[1 2]`, `{"a" 1}`, `{a:1}`, `tru`, `nul`, `truth`, `01`, `-`, `1.`, `1e`, `1e+`,
	`.5`, `+1`, `"`, `"\x"`, `"\u12"`, "\"\n\"", `1 1`, `{} x`, `}`, `]`, `[}`, `{]`, `1e999`, `-01`, `[01]`, `{"a":01}`, `'a'`,
}

// compareWithDecoder checks that Parse accepts, rejects and decodes a document like the decoder of
// Kubernetes, and that its canonical and its clean form have the same value.
func compareWithDecoder(t *testing.T, data []byte) {
	var want any
	wantErr := kjson.UnmarshalCaseSensitivePreserveInts(data, &want)
	doc, err := tape.Parse(data)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("Parse(%q): got error %v, want %v", data, err, wantErr)
	}
	if err != nil {
		if err.Error() != wantErr.Error() {
			t.Errorf("%q: got %q, want %q", data, err, wantErr)
		}
		return
	}
	defer doc.Release()
	if got := doc.Any(tape.Root); !reflect.DeepEqual(got, want) {
		t.Errorf("%q: got %#v, want %#v", data, got, want)
	}
	canonical, _ := json.Marshal(want)
	if got := doc.AppendCanonical(nil, tape.Root); string(got) != string(canonical) {
		t.Errorf("%q: canonical form %s, want %s", data, got, canonical)
	}
	clean, err := doc.Canonicalize()
	if err != nil || !clean.Clean() {
		t.Fatalf("%q: cleaned: %v", data, err)
	}
	defer clean.Release()
	if got := clean.Any(tape.Root); !reflect.DeepEqual(got, want) {
		t.Errorf("%q: got cleaned document %s, want %v", data, clean.Raw(), want)
	}
	if !tape.Equal(clean, tape.Root, clean, tape.Root) {
		t.Errorf("%q compared with itself: got different, want equal", data)
	}
}

// TestParseMatchesDecoder compares Parse with the decoder of Kubernetes.
func TestParseMatchesDecoder(t *testing.T) {
	for _, text := range texts {
		compareWithDecoder(t, []byte(text))
	}
}

func FuzzParseMatchesDecoder(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(compareWithDecoder)
}

// TestDuplicatesReturnsEachPathOnce checks the paths of repeated keys: each path once, in the order of the document.
func TestDuplicatesReturnsEachPathOnce(t *testing.T) {
	many := strings.Repeat(`"k":1,`, 30)
	tests := map[string][]string{
		`{"a":1,"b":{"c":1}}`:                               nil,
		`{"a":1,"a":2,"a":3}`:                               {"a"},
		`{"a":[{"b":1,"b":2},{"b":1}]}`:                     {"a[0].b"},
		`{"a":{"x":1,"x":2},"a":{"y":1,"\u0079":2}}`:        {"a.x", "a", "a.y"},
		`{` + many + `"z":1}`:                               {"k"},
		`{"a":1,"b":2,"b":3,"a":4}`:                         {"b", "a"},
		"{\"a\":\"\xff\"}":                                  nil,
		`{"l":[[{"m":{"n":0,"n":1}}]]}`:                     {"l[0][0].m.n"},
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"a":2}`: {"a"},
	}
	for text, want := range tests {
		d := parse(t, text)
		if got := d.Duplicates(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		var v any
		strict, err := kjson.UnmarshalStrict([]byte(text), &v)
		if err != nil {
			t.Fatal(err)
		}
		if len(strict) != len(want) {
			t.Errorf("%s: got duplicates %v, want those of the Kubernetes decoder, %v", text, want, strict)
		}
	}
}

// TestDuplicatePathsAreBounded checks that the total size of the reported paths is limited, so that
// repeated keys below long keys do not amplify a document. The first path is always reported.
func TestDuplicatePathsAreBounded(t *testing.T) {
	for longKeys, want := range map[int]int{0: 100, 1: 21, 4: 6, 30: 1} {
		var twice []string
		for i := range 200 {
			twice = append(twice, fmt.Sprintf(`"a%d":1,"a%[1]d":2`, i))
		}
		value := "{" + strings.Join(twice, ",") + "}"
		first := "a0"
		for range longKeys {
			key := strings.Repeat("k", 50_000)
			value = `{"` + key + `":` + value + `}`
			first = key + "." + first
		}
		got := parse(t, value).Duplicates()
		if len(got) != want || got[0] != first {
			t.Errorf("below %d long keys: got %d duplicates, want %d, the first of them a0", longKeys, len(got), want)
		}
	}
	same := `{"` + strings.Repeat("k", 100_000) + `":{` + strings.Repeat(`"a":1,`, 1000) + `"b":1,"b":2}}`
	if got := parse(t, same).Duplicates(); len(got) != 1 {
		t.Errorf("got %d duplicates after many equal ones, want 1", len(got))
	}
}

// TestEqualIgnoresSpellingAndOrder checks that Equal ignores white space, escapes and the order of keys, and distinguishes
// integers from floats.
func TestEqualIgnoresSpellingAndOrder(t *testing.T) {
	large := `{` + manyMembers(40, false) + `}`
	tests := []struct {
		a, b string
		want bool
	}{
		{a: `{"a":1,"b":[1,2]}`, b: `{ "b":[1,2], "a":1}`, want: true},
		{a: `{"a":1}`, b: `{"a":1.0}`},
		{a: `1.0`, b: `1e0`, want: true},
		{a: `"a"`, b: `"\u0061"`, want: true},
		{a: `[1,2]`, b: `[2,1]`},
		{a: `{"a":null}`, b: `{"b":null}`},
		{a: `true`, b: `false`},
		{a: large, b: `{` + manyMembers(40, true) + `}`, want: true},
		{a: large, b: `{` + manyMembers(39, true) + `,"x":0}`},
	}
	for _, test := range tests {
		if got := tape.Equal(parse(t, test.a), tape.Root, parse(t, test.b), tape.Root); got != test.want {
			t.Errorf("Equal(%s, %s) = %v, want %v", test.a, test.b, got, test.want)
		}
	}
}

// manyMembers returns the text of n members with the keys "k", "kk" and so on.
func manyMembers(n int, backwards bool) string {
	list := make([]string, n)
	for i := range list {
		list[i] = `"k` + strings.Repeat("k", i) + `":` + strings.Repeat("1", 1+i%5)
	}
	if backwards {
		slices.Reverse(list)
	}
	return strings.Join(list, ",")
}

// TestFindAndItem checks lookups in large objects and arrays, whose index concurrent callers build,
// and that the last of two equal keys counts.
func TestFindAndItem(t *testing.T) {
	doc := parse(t, `{`+manyMembers(100, false)+`,"list":[`+strings.Repeat("0,", 200)+`7]}`)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if v := doc.Find(tape.Root, "kkk"); v == tape.None || string(doc.Text(v)) != "111" {
				t.Error("Find(kkk) in a large object: got another value or none, want 111")
			}
			if doc.Find(tape.Root, "x") != tape.None {
				t.Error("Find(x) in a large object without x: got a value, want None")
			}
			if v := doc.Item(doc.Find(tape.Root, "list"), 200); string(doc.Text(v)) != "7" {
				t.Errorf("Item(200) of a large array = %s, want 7", doc.Text(v))
			}
		})
	}
	wait.Wait()
	if doc.Find(doc.Find(tape.Root, "list"), "a") != tape.None {
		t.Error("Find(a) in an array: got a value, want None")
	}
	last := parse(t, `{"a":1,"a":2}`)
	if v := last.Find(tape.Root, "a"); string(last.Text(v)) != "2" {
		t.Errorf("Find(a) with two members a = %s, want the last, 2", last.Text(v))
	}
}

// TestBounds checks the limits of depth and length, and that a syntax error states its offset.
func TestBounds(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if _, err := tape.Parse(deep(tape.MaxDepth)); err != nil {
		t.Error(err)
	}
	if _, err := tape.Parse(deep(tape.MaxDepth + 1)); err == nil || !strings.Contains(err.Error(), "exceeded max depth") {
		t.Errorf("document of depth MaxDepth+1: got error %v, want exceeded max depth", err)
	}
	if _, err := tape.Parse(make([]byte, tape.MaxBytes+1)); !errors.Is(err, tape.ErrTooLarge) {
		t.Errorf("document of MaxBytes+1 bytes: got error %v, want ErrTooLarge", err)
	}
	var syntax *json.SyntaxError
	if _, err := tape.Parse([]byte(`{"a":x}`)); !errors.As(err, &syntax) || syntax.Offset != 6 {
		t.Errorf("got %v, want a syntax error after 6 bytes", err)
	}
}

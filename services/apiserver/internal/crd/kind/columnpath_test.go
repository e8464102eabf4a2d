package kind_test

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestAmplifyingColumnsStayEmpty checks that a column whose path can yield many times the content of an
// object has an empty cell. The cell of any other path has the first match.
func TestAmplifyingColumnsStayEmpty(t *testing.T) {
	// spec.s is an object nested 20 levels deep: {"a":{"a":…}}.
	nested := `{"a":1,"b":2,"l":[1,2,3],"m":[{"n":"x","v":7}]}`
	for range 20 {
		nested = `{"a":` + nested + `}`
	}
	doc := []byte(
		`{"metadata":{"name":"n"},"spec":{"s":` + nested + `,"l":[1,2,3],"b":5,"m":[{"n":"x","v":7},{"n":"y","v":8}],"d":[[[[[[9]]]]]]}}`,
	)
	var absentNames strings.Builder // 64 names that no object has
	for i := range 64 {
		fmt.Fprintf(&absentNames, `,'x%d'`, i)
	}
	for path, want := range map[string]string{ // wanted cell by path; empty for none
		// Paths that yield at most a few values per value of the object.
		`.spec.l[0]`:                                "1",
		`.spec.l[-1:]`:                              "3",
		`.spec.m[*].v`:                              "7",
		`.spec.m[?(@.n=='y')].v`:                    "8",
		`.spec.m[?(@['n','x']=='y')]['v','w']`:      "8",
		`.spec..v`:                                  "7",
		`.spec..m[?(@.n=='y')].v`:                   "8",
		`.spec.m[?(@..v)].n`:                        "x",
		`.spec.d` + strings.Repeat(`[*]`, 6):        "9",
		`.spec.d` + strings.Repeat(`[0]`, 6):        "9",
		`.spec['b','l']`:                            "5",
		`.spec.s` + strings.Repeat(`['a','b']`, 21): "1", // visits each value once
		`.spec.l[0,1,2]`:                            "1",
		`.spec.l[2,-1,0]`:                           "3",
		`.spec.l[*,*]`:                              "1",
		`.spec.d` + strings.Repeat(`[*,*]`, 3) + `[0][0][0]`: "9",
		`.spec.b}{.spec.l[0]`:                                "5",
		`.spec.b`:                                            "5",

		// Paths that are rejected, because they yield a value many times or take long to evaluate.
		`.spec..a..a`:                                           "",
		`.spec.m[?(@..v)]..n`:                                   "",
		`.spec..m[?(@..v)].n`:                                   "",
		`.spec.s` + strings.Repeat(`['a','a']`, 21):             "",
		`.spec.s` + strings.Repeat(`['a','*']`, 21):             "",
		`.spec.d` + strings.Repeat(`[*,*]`, 4):                  "",
		`.spec.l[` + strings.Repeat(`*,`, 8) + `*]`:             "",
		`.spec.l[` + strings.Repeat(`0,`, 8) + `0]`:             "",
		`.spec.b` + strings.Repeat(`}{.spec.l[*]`, 8):           "",
		`.spec.b}{range .spec}{range .spec}{.b`:                 "",
		`.spec.b` + strings.Repeat(` `, 20_000):                 "", // longer than the parser accepts
		`.spec.b` + strings.Repeat(`@`, 3<<20):                  "",
		`.spec['b'` + absentNames.String() + `]`:                "", // looks up 65 names in each value
		`.spec.b` + strings.Repeat(`'x'`, 500):                  "", // more steps than an object has levels
		`.spec.m[?(@[` + strings.Repeat(`'v',`, 8) + `'v'])].n`: "",
	} {
		columnKind := columnsKind(t, []v1.CustomResourceColumnDefinition{{Name: "c", Type: "string", JSONPath: path}})
		got := columnKind.Presentation.Columns[1].Cell(decodeDocument(t, doc))
		text, _ := got.(string)
		if text != want || got != nil && want == "" {
			t.Errorf("path %.60s: got cell %v, want %q", path, got, want)
		}
	}
}

// TestColumnsBeyondRowLimitStayEmpty checks that the columns of a row do not read a large object many
// times. Columns that would exceed the limit of the row are empty.
func TestColumnsBeyondRowLimitStayEmpty(t *testing.T) {
	doc := []byte(`{"metadata":{"name":"a"},"spec":{"small":"s","text":"` + strings.Repeat("x", 1<<20) + `"}}`)
	const columnCount = 100
	wantFilled := map[string]int{".spec.small": columnCount, ".metadata": 15, ".spec": 15, ".spec.text": 15}
	for path, want := range wantFilled {
		var columns []v1.CustomResourceColumnDefinition
		for i := range columnCount {
			columns = append(columns, v1.CustomResourceColumnDefinition{Name: fmt.Sprint(i), Type: "string", JSONPath: path})
		}
		decode := func() (registry.Object, error) { return decodeDocument(t, doc), nil }
		cells, err := columnsKind(t, columns).Document.TableRow(doc, decode)
		if err != nil {
			t.Fatal(err)
		}
		filled := 0
		for _, cell := range cells[1:] {
			if cell != nil {
				filled++
			}
		}
		if len(cells) != 1+columnCount || cells[0] != "a" || filled != want {
			t.Errorf("path %s: got %d cells, name %v, %d filled columns; want %d, a, %d",
				path, len(cells), cells[0], filled, 1+columnCount, want)
		}
	}
}

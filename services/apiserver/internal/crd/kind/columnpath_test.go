package kind_test

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestAmplifyingColumns checks that a path that yields many times the content of an object shows
// nothing. Other paths show their first match.
func TestAmplifyingColumns(t *testing.T) {
	// Each name leads one level deeper, to the same value.
	inner := `{"a":1,"b":2,"l":[1,2,3],"m":[{"n":"x","v":7}]}`
	for range 20 {
		inner = `{"a":` + inner + `}`
	}
	doc := []byte(`{"metadata":{"name":"n"},"spec":{"s":` + inner + `,"l":[1,2,3],"b":5,"m":[{"n":"x","v":7},{"n":"y","v":8}],"d":[[[[[[9]]]]]]}}`)
	var others strings.Builder
	for i := range 64 {
		fmt.Fprintf(&others, `,'x%d'`, i)
	}
	for path, want := range map[string]string{
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
		`.spec.s` + strings.Repeat(`['a','b']`, 21): "1", // each value once
		`.spec.l[0,1,2]`:                            "1",
		`.spec.l[2,-1,0]`:                           "3",
		`.spec.l[*,*]`:                              "1",
		`.spec.d` + strings.Repeat(`[*,*]`, 3) + `[0][0][0]`: "9",
		`.spec.b}{.spec.l[0]`:                                "5",
		`.spec.b`:                                            "5",

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
		`.spec['b'` + others.String() + `]`:                     "", // for each value
		`.spec.b` + strings.Repeat(`'x'`, 500):                  "", // more than the levels of an object
		`.spec.m[?(@[` + strings.Repeat(`'v',`, 8) + `'v'])].n`: "",
	} {
		k := columnsKind(t, []v1.CustomResourceColumnDefinition{{Name: "c", Type: "string", JSONPath: path}})
		got := k.Presentation.Columns[1].Cell(atomicType(t, doc))
		text, _ := got.(string)
		if text != want || got != nil && want == "" {
			t.Errorf("%.60s: got %v, want %q", path, got, want)
		}
	}
}

// TestColumnsOfLargeObjects checks that the columns of a row do not read a large object again and
// again.
func TestColumnsOfLargeObjects(t *testing.T) {
	doc := []byte(`{"metadata":{"name":"a"},"spec":{"small":"s","text":"` + strings.Repeat("x", 1<<20) + `"}}`)
	for path, want := range map[string]int{".spec.small": 100, ".metadata": 15, ".spec": 15, ".spec.text": 15} {
		var columns []v1.CustomResourceColumnDefinition
		for i := range 100 {
			columns = append(columns, v1.CustomResourceColumnDefinition{Name: fmt.Sprint(i), Type: "string", JSONPath: path})
		}
		cells, err := columnsKind(t, columns).Document.TableRow(doc, func() (registry.Object, error) { return atomicType(t, doc), nil })
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		for _, c := range cells[1:] {
			if c != nil {
				shown++
			}
		}
		if len(cells) != 101 || cells[0] != "a" || shown != want {
			t.Errorf("%s: got %d cells, %d columns, want %d", path, len(cells), shown, want)
		}
	}
}

package jsontext

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyPathsMatchFewPaths checks that a set of many paths, which uses maps, finds the same
// values as a small set.
func TestManyPathsMatchFewPaths(t *testing.T) {
	names := []string{"a", `q"uo`, "é", "", "a.b", "l", "o"}
	paths := []Path{}
	for _, name := range names {
		paths = append(paths, Fields(name), Fields("o", name))
	}
	for i := range 3 {
		paths = append(paths, Path{{Name: "l"}, {Index: 2 * i, Element: true}})
	}
	few := Compile(paths...)
	for i := range minIndexed {
		paths = append(paths, Fields(fmt.Sprint("other", i)), Fields("o", fmt.Sprint("other", i)),
			Path{{Name: "l"}, {Index: 100 + i, Element: true}})
	}
	all := Compile(append(paths, paths...)...)
	for _, n := range []*node{&all.root, all.root.fieldChild([]byte("o")), all.root.fieldChild([]byte("l"))} {
		if n.named == nil && n.indexed == nil {
			t.Fatal("set of many paths does not use maps")
		}
	}
	if few.root.named != nil || few.root.fieldChild([]byte("l")).indexed != nil {
		t.Fatal("small set uses maps")
	}
	for _, doc := range []string{
		`{"a":1,"q\"uo":2,"\u00e9":3,"":4,"a.b":5,"l":[0,1,2,3,4,5],"o":{"a":6,"l":[],"o":{}},"x":7}`,
		`{"a":1,"a":2,"o":{"a":1},"o":{"q\u0022uo":2},"l":[0]}`,
		`{"l":{"a":1},"o":[1]}`, `{}`, `[1,2]`,
	} {
		want, err := few.Find([]byte(doc), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := all.Find([]byte(doc), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if string(got[i]) != string(w) || string(got[len(paths)+i]) != string(w) {
				t.Errorf("%s: path %v: got %s, want %s", doc, paths[i], got[i], w)
			}
		}
		for i := len(want); i < len(got); i++ {
			if j := i % len(paths); j >= len(want) && got[i] != nil {
				t.Errorf("%s: path %v: got %s, want nothing", doc, paths[j], got[i])
			}
		}
	}
	if found, err := Compile(Fields("a")).Find([]byte(`{"`+strings.Repeat(" ", 10)+`":1}`), nil); err != nil || found[0] != nil {
		t.Errorf("member a of an object without it: got %q, %v, want nothing", found, err)
	}
}

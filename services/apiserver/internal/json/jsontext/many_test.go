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
	// More paths than minIndexed below the root, below "o" and below the array "l" make Compile
	// index each of them by map. No document has them.
	for i := range minIndexed {
		paths = append(paths, Fields(fmt.Sprint("other", i)), Fields("o", fmt.Sprint("other", i)),
			Path{{Name: "l"}, {Index: 100 + i, Element: true}})
	}
	many := Compile(append(paths, paths...)...) // each path twice
	for name, pathNode := range map[string]*node{
		"the root": &many.root, "o": many.root.fieldChild([]byte("o")), "l": many.root.fieldChild([]byte("l")),
	} {
		if pathNode.named == nil && pathNode.indexed == nil {
			t.Fatalf("set of %d paths: children of %s are not in a map, want one", 2*len(paths), name)
		}
	}
	if few.root.named != nil || few.root.fieldChild([]byte("l")).indexed != nil {
		t.Fatal("set of few paths has maps, want none")
	}
	for _, doc := range []string{
		`{"a":1,"q\"uo":2,"\u00e9":3,"":4,"a.b":5,"l":[0,1,2,3,4,5],"o":{"a":6,"l":[],"o":{}},"x":7}`,
		`{"a":1,"a":2,"o":{"a":1},"o":{"q\u0022uo":2},"l":[0]}`,
		`{"l":{"a":1},"o":[1]}`, `{}`, `[1,2]`,
	} {
		want, err := few.Find([]byte(doc), nil)
		if err != nil {
			t.Fatalf("few paths: Find(%s): %v", doc, err)
		}
		got, err := many.Find([]byte(doc), nil)
		if err != nil {
			t.Fatalf("many paths: Find(%s): %v", doc, err)
		}
		// got[i] and got[len(paths)+i] are the values of paths[i], which the set has twice.
		for i, path := range paths {
			var wanted []byte // nothing for the paths that no document has
			if i < len(want) {
				wanted = want[i]
			}
			for _, value := range [][]byte{got[i], got[len(paths)+i]} {
				if string(value) != string(wanted) || (value == nil) != (wanted == nil) {
					t.Errorf("Find(%s): path %v: got %q, want %q as in the set of few paths", doc, path, value, wanted)
				}
			}
		}
	}
	// The name differs from "a" in its length, too.
	doc := `{"` + strings.Repeat(" ", 10) + `":1}`
	if found, err := Compile(Fields("a")).Find([]byte(doc), nil); err != nil || found[0] != nil {
		t.Errorf("Find(%s): path a: got %q, %v, want nothing", doc, found, err)
	}
}

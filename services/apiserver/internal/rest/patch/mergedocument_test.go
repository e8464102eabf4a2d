package patch

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// anyJSON draws a value. Objects have few different names, so that names collide.
func anyJSON(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return json.Number([]string{"1", "1.0", "1e3", "9007199254740993"}[rapid.IntRange(0, 3).Draw(t, "number")])
		case 2:
			return rapid.SampledFrom([]string{"", "x", "<ä>"}).Draw(t, "text")
		case 3:
			return true
		case 4:
			return rapid.SliceOfN(anyJSON(depth-1), 0, 3).Draw(t, "list")
		}
		return anyObject(depth-1).Draw(t, "object")
	})
}

func anyObject(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), anyJSON(depth), 0, 3).Draw(t, "members")
	})
}

// asEncoded returns the document as encoding/json writes it.
func asEncoded(t *rapid.T, doc []byte) []byte {
	b, err := json.Marshal(json.RawMessage(doc))
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return b
}

// TestMergePatchMatchesLibrary checks that merge patches give the same result as the library that
// Kubernetes uses.
func TestMergePatchMatchesLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc, err := json.Marshal(anyObject(3).Draw(t, "doc"))
		if err != nil {
			t.Fatal(err)
		}
		patch, err := json.Marshal(anyObject(3).Draw(t, "patch"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := Decode(types.MergePatchType, patch, true)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.strategy.(*mergePatch).applyTo(doc)
		if err != nil {
			t.Fatal(err)
		}
		want, err := jsonpatch.MergePatch(doc, patch)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(asEncoded(t, got), want) {
			t.Fatalf("%s into %s: got %s, want %s", patch, doc, got, want)
		}
	})
}

// TestDeepPatchesAreRejected checks that patches that are nested too deeply or expand aliases too
// much are rejected.
func TestDeepPatchesAreRejected(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600)
	for typ, body := range map[string]string{
		"application/merge-patch+json":           deep,
		"application/strategic-merge-patch+json": deep,
		"application/apply-patch+yaml":           deep,
		"application/json-patch+json":            `[{"op":"add","path":"/a","value":` + deep + `}]`,
	} {
		if _, err := Decode(types.PatchType(typ), []byte(body), true); err == nil ||
			!strings.Contains(err.Error(), "nested more than 500 levels deep") {
			t.Errorf("%s: got error %v, want one of the depth", typ, err)
		}
	}
	bomb := "a: &a [" + strings.Repeat("x", 1<<20) + "]\nb: [*a, *a, *a, *a]\n"
	if _, err := Decode("application/apply-patch+yaml", []byte(bomb), true); err == nil ||
		!strings.Contains(err.Error(), "the aliases of the document expand") {
		t.Errorf("alias expansion: got error %v, want one of the aliases", err)
	}
}

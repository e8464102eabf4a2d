package crdinformer_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
)

// What is kept of encodings, and watches, outlast changes of a definition that say nothing else
// of its objects, and no others.
func TestTermsOfDefinitions(t *testing.T) {
	now := func(r *rig) *apiset.Resource {
		return r.live.Current().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widget1s"})
	}
	described := func(text string) string { return widgets(1, "True", fmt.Sprintf(`,"description":%q`, text)) }
	annotated := func(body, text string) string {
		return strings.Replace(body, `"metadata":{`, fmt.Sprintf(`"metadata":{"annotations":{"a":%q},`, text), 1)
	}
	r := newRig(t, described("first"))
	r.until()
	first := now(r)
	for name, c := range map[string]struct {
		body string
		ends bool
	}{
		"an annotation":         {body: annotated(described("first"), "x")},
		"its schema":            {body: described("other"), ends: true},
		"accepted names":        {body: strings.Replace(described("first"), `"acceptedNames":{`, `"acceptedNames":{"shortNames":["w"],`, 1), ends: true},
		"that it is no more":    {body: widgets(1, "False", `,"description":"first"`)}, // its store ends them
		"that no version is so": {body: strings.Replace(described("first"), `"served":true`, `"served":false`, 1), ends: true},
	} {
		r.tell([]string{described("first")})
		r.until()
		was := now(r)
		r.tell([]string{c.body})
		r.until()
		if c.ends {
			<-was.Life.Done() // soon after the other definition is served
		} else if was.Life.Err() != nil {
			t.Errorf("%s: watches end", name)
		}
		if is := now(r); is != nil && (is.Slot == was.Slot) == c.ends {
			t.Errorf("%s: slots %d and %d", name, was.Slot, is.Slot)
		}
	}
	seen := map[int]bool{first.Slot: true}
	for i := range 1100 {
		r.tell([]string{described(fmt.Sprint(i))})
		r.until()
		if slot := now(r).Slot; seen[slot] {
			t.Fatalf("after %d changes what was encoded by another definition is shown", i)
		} else {
			seen[slot] = true
		}
	}
	r.tell([]string{described("again")})
	r.until()
	was := now(r)
	r.tell(nil, "widget1s.example.com")
	r.until()
	if was.Life.Err() != nil { // by then the store has ended them
		t.Error("watches end before they tell of the last objects")
	}
}

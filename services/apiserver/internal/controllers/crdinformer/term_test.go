package crdinformer_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
)

// TestOnlyChangesThatAffectObjectsEndPeriod checks that cached encodings and watches survive changes
// of a definition that do not affect its objects. Other changes end them.
func TestOnlyChangesThatAffectObjectsEndPeriod(t *testing.T) {
	servedResource := func(informer *fixture) *apiset.Resource {
		return informer.live.Current().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widget1s"})
	}
	described := func(text string) string { return widgets(1, "True", fmt.Sprintf(`,"description":%q`, text)) }
	annotated := func(body, text string) string {
		return strings.Replace(body, `"metadata":{`, fmt.Sprintf(`"metadata":{"annotations":{"a":%q},`, text), 1)
	}
	informer := newFixture(t, described("first"))
	informer.waitForSwaps()
	first := servedResource(informer)
	for name, test := range map[string]struct {
		body string
		ends bool
	}{
		"annotation":        {body: annotated(described("first"), "x")},
		"schema":            {body: described("other"), ends: true},
		"accepted names":    {body: strings.Replace(described("first"), `"acceptedNames":{`, `"acceptedNames":{"shortNames":["w"],`, 1), ends: true},
		"not established":   {body: widgets(1, "False", `,"description":"first"`)}, // its store ends them
		"no served version": {body: strings.Replace(described("first"), `"served":true`, `"served":false`, 1), ends: true},
	} {
		informer.send([]string{described("first")})
		informer.waitForSwaps()
		before := servedResource(informer)
		informer.send([]string{test.body})
		informer.waitForSwaps()
		if test.ends {
			<-before.DefinitionContext.Done() // shortly after the new definition is served
		} else if before.DefinitionContext.Err() != nil {
			t.Errorf("%s: got ended watches, want them to continue", name)
		}
		if after := servedResource(informer); after != nil && (after.Slot == before.Slot) == test.ends {
			t.Errorf("%s: got slot %d after %d, want another one: %t", name, after.Slot, before.Slot, test.ends)
		}
	}
	seen := map[int]bool{first.Slot: true}
	for i := range 1100 {
		informer.send([]string{described(fmt.Sprint(i))})
		informer.waitForSwaps()
		if slot := servedResource(informer).Slot; seen[slot] {
			t.Fatalf("after %d changes: got slot %d of an earlier definition, want a new one", i, slot)
		} else {
			seen[slot] = true
		}
	}
	informer.send([]string{described("again")})
	informer.waitForSwaps()
	before := servedResource(informer)
	informer.send(nil, "widget1s.example.com")
	informer.waitForSwaps()
	if before.DefinitionContext.Err() != nil { // the store has ended them by then
		t.Error("deleted definition: got ended watches before their last events, want them to continue")
	}
}

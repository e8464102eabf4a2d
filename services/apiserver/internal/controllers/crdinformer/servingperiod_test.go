package crdinformer_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
)

// servedResource returns the served resource of the definition widgets(1, …), or nil.
func servedResource(f *fixture) *apiset.Resource {
	return f.live.Current().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widget1s"})
}

// described returns a definition whose schema has a description.
func described(text string) string { return widgets(1, "True", fmt.Sprintf(`,"description":%q`, text)) }

// TestOnlyChangesThatAffectObjectsEndPeriod checks that cached encodings and watches survive changes
// of a definition that do not affect its objects. Other changes end them.
func TestOnlyChangesThatAffectObjectsEndPeriod(t *testing.T) {
	annotated := func(body, text string) string {
		return strings.Replace(body, `"metadata":{`, fmt.Sprintf(`"metadata":{"annotations":{"a":%q},`, text), 1)
	}
	fixture := newFixture(t, described("first"))
	fixture.waitForSwaps()
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
		fixture.send([]string{described("first")})
		fixture.waitForSwaps()
		before := servedResource(fixture)
		fixture.send([]string{test.body})
		fixture.waitForSwaps()
		if test.ends {
			<-before.DefinitionContext.Done() // shortly after the new definition is served
		} else if before.DefinitionContext.Err() != nil {
			t.Errorf("%s: got ended watches, want them to continue", name)
		}
		if after := servedResource(fixture); after != nil && (after.Slot == before.Slot) == test.ends {
			t.Errorf("%s: got slot %d after %d, want another one: %t", name, after.Slot, before.Slot, test.ends)
		}
	}
}

// TestEachChangedSchemaGetsUnusedSlot checks that no slot of an earlier definition is used again, so that
// no encoding of an earlier definition is found in the cache.
func TestEachChangedSchemaGetsUnusedSlot(t *testing.T) {
	f := newFixture(t, described("first"))
	f.waitForSwaps()
	first := servedResource(f)
	seen := map[int]bool{first.Slot: true}
	for i := range 1100 {
		f.send([]string{described(fmt.Sprint(i))})
		f.waitForSwaps()
		if slot := servedResource(f).Slot; seen[slot] {
			t.Fatalf("after %d changes: got slot %d of an earlier definition, want a new one", i, slot)
		} else {
			seen[slot] = true
		}
	}
}

// TestDeletedDefinitionDoesNotEndWatchesEarly checks that the informer does not end the watches of a
// deleted definition. The store ends them after their last events.
func TestDeletedDefinitionDoesNotEndWatchesEarly(t *testing.T) {
	f := newFixture(t, described("first"))
	f.waitForSwaps()
	before := servedResource(f)
	f.send(nil, "widget1s.example.com")
	f.waitForSwaps()
	if before.DefinitionContext.Err() != nil {
		t.Error("deleted definition: got ended watches before their last events, want them to continue")
	}
}

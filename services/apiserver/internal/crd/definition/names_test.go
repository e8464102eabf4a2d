package definition

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// named returns the names of a definition: plural, singular, kind, list kind, short names.
func named(n ...string) v1.CustomResourceDefinitionNames {
	out := v1.CustomResourceDefinitionNames{Plural: n[0], Singular: n[1], Kind: n[2], ListKind: n[3]}
	if len(n) > 4 {
		out.ShortNames = n[4:]
	}
	return out
}

// TestDecide checks which names a definition gets, and the conflicts with other definitions.
func TestDecide(t *testing.T) {
	first := named("gadgets", "gadget", "Gadget", "GadgetList", "gdt")
	settled := NameClaim{Name: "gadgets", Created: 1, Wanted: first, Held: first, Established: true}
	for _, test := range []struct {
		name         string
		claim        NameClaim
		accepted     v1.CustomResourceDefinitionNames
		reason, text string
		established  bool
	}{
		{
			name: "free names", claim: NameClaim{Wanted: named("gizmos", "gizmo", "Gizmo", "GizmoList", "gz")},
			accepted: named("gizmos", "gizmo", "Gizmo", "GizmoList", "gz"), reason: "", text: "", established: true,
		},
		{
			name: "a singular that is a plural", claim: NameClaim{Wanted: named("gizmos", "gadgets", "Gizmo", "GizmoList")},
			accepted: named("gizmos", "", "Gizmo", "GizmoList"), reason: "SingularConflict", text: `"gadgets" is already in use`, established: false,
		},
		{
			name: "the list kind", claim: NameClaim{Wanted: named("gismos", "gismo", "Gismo", "GadgetList")},
			accepted: named("gismos", "gismo", "Gismo", ""), reason: "ListKindConflict", text: `"GadgetList" is already in use`, established: false,
		},
		{
			name: "a list kind that is a kind", claim: NameClaim{Wanted: named("gismos", "gismo", "Gismo", "Gadget")},
			accepted: named("gismos", "gismo", "Gismo", ""), reason: "ListKindConflict", text: `"Gadget" is already in use`, established: false,
		},
		{
			name: "everything: the last conflict is reported", claim: NameClaim{Wanted: named("gems", "gadget", "Gadget", "GadgetList", "gadget", "gdt", "gm")},
			accepted: named("gems", "", "", ""), reason: "ListKindConflict", text: `"GadgetList" is already in use`, established: false,
		},
		{
			name: "one of several short names", claim: NameClaim{Wanted: named("gems", "gem", "Gem", "GemList", "gadget", "gdt", "gm")},
			accepted: named("gems", "gem", "Gem", "GemList"), reason: "ShortNamesConflict", text: `["gadget" is already in use, "gdt" is already in use]`, established: false,
		},
		{
			name: "an established definition keeps its names", claim: NameClaim{Wanted: named("gems", "gem", "Gem", "GemList", "gdt"), Held: named("gems", "gem", "Gem", "GemList", "gm"), Established: true},
			accepted: named("gems", "gem", "Gem", "GemList", "gm"), reason: "ShortNamesConflict", text: `"gdt" is already in use`, established: true,
		},
		{
			name: "its own singular as a short name, at first", claim: NameClaim{Wanted: named("gems", "gem", "Gem", "GemList", "gem")},
			accepted: named("gems", "gem", "Gem", "GemList", "gem"), reason: "", text: "", established: true,
		},
		{
			name: "and later", claim: NameClaim{Wanted: named("gems", "gem", "Gem", "GemList", "gem"), Held: named("gems", "gem", "Gem", "GemList")},
			accepted: named("gems", "gem", "Gem", "GemList"), reason: "ShortNamesConflict", text: `"gem" is already in use`, established: false,
		},
		{
			name: "invalid certificates", claim: NameClaim{Wanted: named("gems", "gem", "Gem", "GemList"), Broken: true},
			accepted: named("gems", "gem", "Gem", "GemList"), reason: "", text: "", established: false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.claim.Name, test.claim.Created = "second", 2
			got := Decide([]NameClaim{test.claim, settled})[0]
			if !sameNames(&got.Accepted, &test.accepted) || got.Established != test.established {
				t.Errorf("got accepted %+v, established %t", got.Accepted, got.Established)
			}
			var conflict Conflict
			if got.Conflict != nil {
				conflict = *got.Conflict
			}
			if conflict != (Conflict{test.reason, test.text}) {
				t.Errorf("got conflict %+v", conflict)
			}
		})
	}
}

// TestOldestDefinitionWins: the oldest definition that wants a name gets it, also when the name
// becomes free later.
func TestOldestDefinitionWins(t *testing.T) {
	holder := NameClaim{Name: "a", Created: 3, Wanted: named("as", "a", "A", "AList"), Held: named("as", "a", "A", "AList", "x"), Established: true}
	late := NameClaim{Name: "b", Created: 2, Wanted: named("bs", "b", "B", "BList", "x")}
	early := NameClaim{Name: "c", Created: 1, Wanted: named("cs", "c", "C", "CList", "x")}
	v := Decide([]NameClaim{late, holder, early})
	if v[2].Conflict != nil || !slices.Equal(v[2].Accepted.ShortNames, []string{"x"}) {
		t.Errorf("oldest: got %+v", v[2])
	}
	if v[0].Conflict == nil {
		t.Error("the second definition gets the name too")
	}
}

// claimsOf draws definitions that compete for few names.
func claimsOf(t *rapid.T) []NameClaim {
	letter := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	names := func(label string) v1.CustomResourceDefinitionNames {
		short := rapid.SliceOfNDistinct(letter, 0, 2, rapid.ID).Draw(t, label+" short")
		if len(short) == 0 {
			short = nil
		}
		return v1.CustomResourceDefinitionNames{
			Plural: letter.Draw(t, label+" plural"), Singular: letter.Draw(t, label+" singular"), ShortNames: short,
			Kind: letter.Draw(t, label+" kind"), ListKind: letter.Draw(t, label+" list kind"),
		}
	}
	claims := make([]NameClaim, rapid.IntRange(1, 6).Draw(t, "definitions"))
	for i := range claims {
		// Some creation revisions are equal, which real definitions never are.
		claims[i] = NameClaim{Name: fmt.Sprint(i), Created: rapid.Int64Range(1, 4).Draw(t, "created"), Wanted: names("wanted"), Broken: rapid.Bool().Draw(t, "broken")}
		if rapid.Bool().Draw(t, "held") {
			claims[i].Held = names("held")
			claims[i].Established = rapid.Bool().Draw(t, "established")
		}
	}
	return claims
}

func byName(claims []NameClaim, verdicts []Verdict) map[string]Verdict {
	out := map[string]Verdict{}
	for i, c := range claims {
		out[c.Name] = verdicts[i]
	}
	return out
}

// TestDecisionDoesNotDependOnOrder: the result depends only on the set of definitions.
func TestDecisionDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := claimsOf(t)
		want := byName(claims, Decide(claims))
		shuffled := rapid.Permutation(claims).Draw(t, "order")
		if got := byName(shuffled, Decide(shuffled)); !reflect.DeepEqual(got, want) {
			t.Fatalf("in another order %+v, want %+v", got, want)
		}
	})
}

// TestDecisionIsStable: once every status reports the decision, deciding again changes nothing.
func TestDecisionIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := claimsOf(t)
		want := Decide(claims)
		for i := range claims {
			claims[i].Held, claims[i].Established = want[i].Accepted, want[i].Established
		}
		if got := Decide(claims); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// TestAcceptedNamesAreUnique: no two definitions have the same accepted name.
func TestAcceptedNamesAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := claimsOf(t)
		for i := range claims {
			claims[i].Held = v1.CustomResourceDefinitionNames{}
		}
		resources, kinds := map[string]int{}, map[string]int{}
		note := func(in map[string]int, name string, claim int) {
			if has, ok := in[name]; name != "" && ok && has != claim {
				t.Fatalf("%s is accepted for %d and %d", name, has, claim)
			}
			in[name] = claim
		}
		for i, v := range Decide(claims) {
			for _, n := range append([]string{v.Accepted.Plural, v.Accepted.Singular}, v.Accepted.ShortNames...) {
				note(resources, n, i)
			}
			note(kinds, v.Accepted.Kind, i)
			note(kinds, v.Accepted.ListKind, i)
		}
	})
}

// TestIncrementalNames: a set that was changed step by step decides like a new one, and reports
// every change.
func TestIncrementalNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := NewNameConflicts()
		present, changes := map[string]NameClaim{}, map[string]Verdict{}
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for _, c := range claimsOf(t) {
				if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
					n.Remove("g", c.Name)
					delete(present, c.Name)
				} else {
					n.Put("g", c)
					present[c.Name] = c
				}
			}
			for _, c := range n.Settle() {
				if c.Gone {
					delete(changes, c.Name)
				} else {
					changes[c.Name] = c.Verdict
				}
			}
			var claims []NameClaim
			for _, c := range present {
				claims = append(claims, c)
			}
			want := byName(claims, Decide(claims))
			if !reflect.DeepEqual(changes, want) {
				t.Fatalf("got changes %+v, want %+v", changes, want)
			}
			for name, v := range want {
				if got, ok := n.Of("g", name); !ok || !reflect.DeepEqual(got, v) {
					t.Fatalf("%s: got %+v, want %+v", name, got, v)
				}
			}
		}
	})
}

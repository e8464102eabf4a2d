package definition

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// named returns the names of a definition, in the order plural, singular, kind, list kind, short
// names.
func named(names ...string) v1.CustomResourceDefinitionNames {
	out := v1.CustomResourceDefinitionNames{Plural: names[0], Singular: names[1], Kind: names[2], ListKind: names[3]}
	if len(names) > 4 {
		out.ShortNames = names[4:]
	}
	return out
}

// TestDecideAcceptsFreeNames checks the names that a definition gets while gadgets.example.com
// holds others.
func TestDecideAcceptsFreeNames(t *testing.T) {
	gadgetNames := named("gadgets", "gadget", "Gadget", "GadgetList", "gdt")
	gadgets := NameClaim{Name: "gadgets", Created: 1, Requested: gadgetNames, Accepted: gadgetNames, Established: true}
	for _, test := range []struct {
		name            string
		claim           NameClaim
		accepted        v1.CustomResourceDefinitionNames
		reason, message string // of the wanted conflict; empty for none
		established     bool
	}{
		{
			name:        "free names",
			claim:       NameClaim{Requested: named("gizmos", "gizmo", "Gizmo", "GizmoList", "gz")},
			accepted:    named("gizmos", "gizmo", "Gizmo", "GizmoList", "gz"),
			established: true,
		},
		{
			name:     "a singular that is a plural",
			claim:    NameClaim{Requested: named("gizmos", "gadgets", "Gizmo", "GizmoList")},
			accepted: named("gizmos", "", "Gizmo", "GizmoList"),
			reason:   "SingularConflict",
			message:  `"gadgets" is already in use`,
		},
		{
			name:     "a list kind that is another's",
			claim:    NameClaim{Requested: named("gismos", "gismo", "Gismo", "GadgetList")},
			accepted: named("gismos", "gismo", "Gismo", ""),
			reason:   "ListKindConflict",
			message:  `"GadgetList" is already in use`,
		},
		{
			name:     "a list kind that is a kind",
			claim:    NameClaim{Requested: named("gismos", "gismo", "Gismo", "Gadget")},
			accepted: named("gismos", "gismo", "Gismo", ""),
			reason:   "ListKindConflict",
			message:  `"Gadget" is already in use`,
		},
		{
			name:     "several conflicts, only the last is reported",
			claim:    NameClaim{Requested: named("gems", "gadget", "Gadget", "GadgetList", "gadget", "gdt", "gm")},
			accepted: named("gems", "", "", ""),
			reason:   "ListKindConflict",
			message:  `"GadgetList" is already in use`,
		},
		{
			name:     "two of three short names",
			claim:    NameClaim{Requested: named("gems", "gem", "Gem", "GemList", "gadget", "gdt", "gm")},
			accepted: named("gems", "gem", "Gem", "GemList"),
			reason:   "ShortNamesConflict",
			message:  `["gadget" is already in use, "gdt" is already in use]`,
		},
		{
			name: "an established definition keeps its names",
			claim: NameClaim{
				Requested:   named("gems", "gem", "Gem", "GemList", "gdt"),
				Accepted:    named("gems", "gem", "Gem", "GemList", "gm"),
				Established: true,
			},
			accepted:    named("gems", "gem", "Gem", "GemList", "gm"),
			reason:      "ShortNamesConflict",
			message:     `"gdt" is already in use`,
			established: true,
		},
		{
			name:        "its own singular as a short name, before names are held",
			claim:       NameClaim{Requested: named("gems", "gem", "Gem", "GemList", "gem")},
			accepted:    named("gems", "gem", "Gem", "GemList", "gem"),
			established: true,
		},
		{
			name:     "its own singular as a short name, after names are held",
			claim:    NameClaim{Requested: named("gems", "gem", "Gem", "GemList", "gem"), Accepted: named("gems", "gem", "Gem", "GemList")},
			accepted: named("gems", "gem", "Gem", "GemList"),
			reason:   "ShortNamesConflict",
			message:  `"gem" is already in use`,
		},
		{
			name:     "free names, but an invalid CA bundle",
			claim:    NameClaim{Requested: named("gems", "gem", "Gem", "GemList"), InvalidWebhook: true},
			accepted: named("gems", "gem", "Gem", "GemList"),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.claim.Name, test.claim.Created = "second", 2
			got := Decide([]NameClaim{test.claim, gadgets})[0]
			if !sameNames(&got.Accepted, &test.accepted) || got.Established != test.established {
				t.Errorf("Decide(%+v): accepted %+v, established %t; want %+v, %t",
					test.claim, got.Accepted, got.Established, test.accepted, test.established)
			}
			var conflict Conflict
			if got.Conflict != nil {
				conflict = *got.Conflict
			}
			if want := (Conflict{Reason: test.reason, Message: test.message}); conflict != want {
				t.Errorf("Decide(%+v): conflict %+v, want %+v", test.claim, conflict, want)
			}
		})
	}
}

// TestOldestDefinitionWins checks that the oldest definition that wants a name gets it, also if its
// holder does not want it any more.
func TestOldestDefinitionWins(t *testing.T) {
	holder := NameClaim{
		Name:        "a",
		Created:     3,
		Requested:   named("as", "a", "A", "AList"),
		Accepted:    named("as", "a", "A", "AList", "x"),
		Established: true,
	}
	second := NameClaim{Name: "b", Created: 2, Requested: named("bs", "b", "B", "BList", "x")}
	oldest := NameClaim{Name: "c", Created: 1, Requested: named("cs", "c", "C", "CList", "x")}
	decisions := Decide([]NameClaim{second, holder, oldest})
	if decisions[2].Conflict != nil || !slices.Equal(decisions[2].Accepted.ShortNames, []string{"x"}) {
		t.Errorf("oldest definition: got %+v, want the short name x and no conflict", decisions[2])
	}
	if decisions[0].Conflict == nil {
		t.Errorf("second definition: got %+v, want a conflict", decisions[0])
	}
}

// drawClaims draws definitions that compete for few names.
func drawClaims(t *rapid.T) []NameClaim {
	letter := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	names := func(label string) v1.CustomResourceDefinitionNames {
		shortNames := rapid.SliceOfNDistinct(letter, 0, 2, rapid.ID).Draw(t, label+" short")
		if len(shortNames) == 0 {
			shortNames = nil
		}
		return v1.CustomResourceDefinitionNames{
			Plural: letter.Draw(t, label+" plural"), Singular: letter.Draw(t, label+" singular"), ShortNames: shortNames,
			Kind: letter.Draw(t, label+" kind"), ListKind: letter.Draw(t, label+" list kind"),
		}
	}
	claims := make([]NameClaim, rapid.IntRange(1, 6).Draw(t, "definitions"))
	for i := range claims {
		// Some creation revisions are equal, which real definitions never are.
		claims[i] = NameClaim{
			Name:           fmt.Sprint(i),
			Created:        rapid.Int64Range(1, 4).Draw(t, "created"),
			Requested:      names("wanted"),
			InvalidWebhook: rapid.Bool().Draw(t, "broken"),
		}
		if rapid.Bool().Draw(t, "held") {
			claims[i].Accepted = names("held")
			claims[i].Established = rapid.Bool().Draw(t, "established")
		}
	}
	return claims
}

// byName returns the decisions by the names of their claims.
func byName(claims []NameClaim, decisions []Decision) map[string]Decision {
	out := map[string]Decision{}
	for i, claim := range claims {
		out[claim.Name] = decisions[i]
	}
	return out
}

// TestDecisionDoesNotDependOnOrder checks that the order of the claims does not matter.
func TestDecisionDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := drawClaims(t)
		want := byName(claims, Decide(claims))
		shuffled := rapid.Permutation(claims).Draw(t, "order")
		if got := byName(shuffled, Decide(shuffled)); !reflect.DeepEqual(got, want) {
			t.Fatalf("Decide(%+v) = %+v, want %+v as in another order", shuffled, got, want)
		}
	})
}

// TestDecisionIsStable checks that the decision does not change once the statuses record it.
func TestDecisionIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := drawClaims(t)
		want := Decide(claims)
		for i := range claims {
			claims[i].Accepted, claims[i].Established = want[i].Accepted, want[i].Established
		}
		if got := Decide(claims); !reflect.DeepEqual(got, want) {
			t.Fatalf("Decide(%+v) = %+v, want %+v", claims, got, want)
		}
	})
}

// TestAcceptedNamesAreUnique checks that no name is accepted for two new definitions.
func TestAcceptedNamesAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := drawClaims(t)
		for i := range claims {
			claims[i].Accepted = v1.CustomResourceDefinitionNames{}
		}
		resources, kinds := map[string]int{}, map[string]int{}
		accept := func(owners map[string]int, name string, claim int) {
			if owner, ok := owners[name]; name != "" && ok && owner != claim {
				t.Fatalf("name %s is accepted for claims %d and %d, want one", name, owner, claim)
			}
			owners[name] = claim
		}
		for i, decision := range Decide(claims) {
			for _, name := range append([]string{decision.Accepted.Plural, decision.Accepted.Singular}, decision.Accepted.ShortNames...) {
				accept(resources, name, i)
			}
			accept(kinds, decision.Accepted.Kind, i)
			accept(kinds, decision.Accepted.ListKind, i)
		}
	})
}

// TestIncrementalDecisionsEqualDecide checks that NameConflicts reaches the same decisions as
// Decide for the same definitions, and reports every change.
func TestIncrementalDecisionsEqualDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nameConflicts := NewNameConflicts()
		present, changes := map[string]NameClaim{}, map[string]Decision{}
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for _, claim := range drawClaims(t) {
				if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
					nameConflicts.Remove("g", claim.Name)
					delete(present, claim.Name)
				} else {
					nameConflicts.Put("g", claim)
					present[claim.Name] = claim
				}
			}
			for _, claim := range nameConflicts.Resolve() {
				if claim.Removed {
					delete(changes, claim.Name)
				} else {
					changes[claim.Name] = claim.Decision
				}
			}
			var claims []NameClaim
			for _, claim := range present {
				claims = append(claims, claim)
			}
			want := byName(claims, Decide(claims))
			if !reflect.DeepEqual(changes, want) {
				t.Fatalf("got changes %+v, want %+v", changes, want)
			}
			for name, decision := range want {
				if got, ok := nameConflicts.Decision("g", name); !ok || !reflect.DeepEqual(got, decision) {
					t.Fatalf("Decision(%q) = %+v, %t; want %+v", name, got, ok, decision)
				}
			}
		}
	})
}

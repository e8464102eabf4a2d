package core_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/randfill"

	"binnacle/services/apiserver/internal/api/kinds/core"
	"binnacle/services/apiserver/internal/registry"
)

// TestRulesHoldForRandomObjects checks that for any object, the rules of its kind do not panic,
// defaulting twice changes nothing, and its cells have types that tables support.
func TestRulesHoldForRandomObjects(t *testing.T) {
	const rounds = 50
	for _, k := range core.Kinds(registry.Settings{}) {
		t.Run(k.Resource, func(t *testing.T) {
			if _, ok := k.New().(registry.Object); !ok {
				t.Fatalf("%T: no metadata, want one", k.New())
			}
			for seed := int64(0); seed < rounds; seed++ {
				fill := randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).MaxDepth(12)
				obj, old := k.New().(registry.Object), k.New().(registry.Object)
				fill.Fill(obj)
				fill.Fill(old)
				exercise(t, k, obj, old)
			}
		})
	}
}

// exercise calls the rules of a kind with two objects, and checks that defaults are consistent.
func exercise(t *testing.T, k *registry.Kind, obj, old registry.Object) {
	t.Helper()
	if k.Default != nil {
		k.Default(obj)
		once := obj.DeepCopyObject()
		k.Default(obj)
		if !equalObjects(once, obj) {
			t.Errorf("%s: defaulting twice changed the object", k.Kind)
		}
	}
	clone := func() registry.Object { return obj.DeepCopyObject().(registry.Object) }
	if k.Create.Prepare != nil {
		k.Create.Prepare(clone())
	}
	if k.Update.Prepare != nil {
		k.Update.Prepare(clone(), old)
	}
	if k.Create.Validate != nil {
		k.Create.Validate(obj)
		k.Update.Validate(obj, old)
	}
	if k.DeclarativeValidation != nil {
		k.DeclarativeValidation(obj)
	}
	if k.Create.Warnings != nil {
		k.Create.Warnings(obj)
	}
	if k.Update.Warnings != nil {
		k.Update.Warnings(obj, old)
	}
	if k.Delete.GracePeriod != nil && k.Delete.GracePeriod(obj, nil) < 0 {
		t.Errorf("%s: got a negative grace period", k.Kind)
	}
	if k.Presentation.RowConditions != nil {
		k.Presentation.RowConditions(obj)
	}
	for _, f := range k.Presentation.Selectable {
		if f.Value != nil {
			f.Value(obj)
		}
	}
	for _, s := range k.Subresources {
		if s.Prepare != nil {
			s.Prepare(clone(), old)
		}
		if s.ValidateUpdate != nil {
			s.ValidateUpdate(obj, old)
		}
	}
	for _, c := range k.Presentation.Columns {
		switch cell := c.Cell(obj).(type) {
		case string, int64, bool, registry.Age:
		default:
			t.Errorf("%s: cell %s: got type %T", k.Kind, c.Name, cell)
		}
	}
}

// TestStatusKeepsSpecAndLiveObject checks that Prepare does not modify the live object, and keeps
// the parts that a subresource does not write.
func TestStatusKeepsSpecAndLiveObject(t *testing.T) {
	for _, k := range core.Kinds(registry.Settings{}) {
		for _, s := range k.Subresources {
			if s.Prepare == nil {
				continue
			}
			t.Run(k.Resource+"/"+s.Name, func(t *testing.T) {
				fill := randfill.NewWithSeed(1).NilChance(0.2).NumElements(1, 3).MaxDepth(12)
				obj, old := k.New().(registry.Object), k.New().(registry.Object)
				fill.Fill(obj)
				fill.Fill(old)
				before := old.DeepCopyObject()
				s.Prepare(obj, old)
				if !equalObjects(before, old) {
					t.Error("the live object was modified")
				}
				kept := []string{"Spec"}
				switch s.Name {
				case "finalize", "ephemeralcontainers":
					kept = []string{"Status"}
				case "resize":
					// The containers differ, so that validation decides.
					kept = nil
				}
				for _, part := range kept {
					if got, want := partOf(obj, part), partOf(old, part); !equality.Semantic.DeepEqual(got, want) {
						t.Errorf("%s: got\n%+v\nwant\n%+v", part, got, want)
					}
				}
			})
		}
	}
}

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
	for _, kind := range core.Kinds(registry.Settings{}) {
		t.Run(kind.Resource, func(t *testing.T) {
			if _, ok := kind.New().(registry.Object); !ok {
				t.Fatalf("%T: no metadata, want some", kind.New())
			}
			for seed := int64(0); seed < rounds; seed++ {
				fill := randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).MaxDepth(12)
				obj, old := kind.New().(registry.Object), kind.New().(registry.Object)
				fill.Fill(obj)
				fill.Fill(old)
				exercise(t, kind, obj, old)
			}
		})
	}
}

// exercise calls the rules of a kind with two objects, and checks that defaults are consistent.
func exercise(t *testing.T, kind *registry.Kind, obj, old registry.Object) {
	t.Helper()
	if kind.Default != nil {
		kind.Default(obj)
		once := obj.DeepCopyObject()
		kind.Default(obj)
		if !equalObjects(once, obj) {
			t.Errorf("%s: defaulting twice changed the object", kind.Kind)
		}
	}
	clone := func() registry.Object { return obj.DeepCopyObject().(registry.Object) }
	if kind.Create.Prepare != nil {
		kind.Create.Prepare(clone())
	}
	if kind.Update.Prepare != nil {
		kind.Update.Prepare(clone(), old)
	}
	if kind.Create.Validate != nil {
		kind.Create.Validate(obj)
		kind.Update.Validate(obj, old)
	}
	if kind.DeclarativeValidation != nil {
		kind.DeclarativeValidation(obj)
	}
	if kind.Create.Warnings != nil {
		kind.Create.Warnings(obj)
	}
	if kind.Update.Warnings != nil {
		kind.Update.Warnings(obj, old)
	}
	if kind.Delete.GracePeriod != nil && kind.Delete.GracePeriod(obj, nil) < 0 {
		t.Errorf("%s: got a negative grace period", kind.Kind)
	}
	if kind.Presentation.RowConditions != nil {
		kind.Presentation.RowConditions(obj)
	}
	for _, f := range kind.Presentation.Selectable {
		if f.Value != nil {
			f.Value(obj)
		}
	}
	for _, subresource := range kind.Subresources {
		if subresource.Prepare != nil {
			subresource.Prepare(clone(), old)
		}
		if subresource.ValidateUpdate != nil {
			subresource.ValidateUpdate(obj, old)
		}
	}
	for _, column := range kind.Presentation.Columns {
		switch cell := column.Cell(obj).(type) {
		case string, int64, bool, registry.Age:
		default:
			t.Errorf("%s: cell %s: got type %T", kind.Kind, column.Name, cell)
		}
	}
}

// TestSubresourceWritesKeepSpecAndLiveObject checks that Prepare of a subresource does not modify the
// live object, and keeps the parts that the subresource does not write.
func TestSubresourceWritesKeepSpecAndLiveObject(t *testing.T) {
	for _, kind := range core.Kinds(registry.Settings{}) {
		for _, subresource := range kind.Subresources {
			if subresource.Prepare == nil {
				continue
			}
			t.Run(kind.Resource+"/"+subresource.Name, func(t *testing.T) {
				fill := randfill.NewWithSeed(1).NilChance(0.2).NumElements(1, 3).MaxDepth(12)
				obj, old := kind.New().(registry.Object), kind.New().(registry.Object)
				fill.Fill(obj)
				fill.Fill(old)
				before := old.DeepCopyObject()
				subresource.Prepare(obj, old)
				if !equalObjects(before, old) {
					t.Error("the live object was modified")
				}
				kept := []string{"Spec"}
				switch subresource.Name {
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

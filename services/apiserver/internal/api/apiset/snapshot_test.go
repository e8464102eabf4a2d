package apiset_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/registry"
)

// catalog returns a catalog with resources of the group version g/v1.
func catalog(t *testing.T, resources ...string) *registry.Catalog {
	t.Helper()
	var kinds []*registry.Kind
	for _, r := range resources {
		kinds = append(kinds, &registry.Kind{Names: registry.Names{Group: "g", Version: "v1", Resource: r, Kind: r}, Virtual: true})
	}
	c, err := registry.NewCatalog([]registry.Group{{Name: "g", Versions: []string{"v1"}}}, kinds)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSnapshotsDoNotChange checks that a set that was read before a swap keeps its resources, and that
// a set that is read after the swap has the new resources.
func TestSnapshotsDoNotChange(t *testing.T) {
	groupVersion := schema.GroupVersion{Group: "g", Version: "v1"}
	live := apiset.NewLive(apiset.Builder{}.Set(catalog(t, "apples"), 1))
	before := live.Current()
	live.Swap(apiset.Builder{}.Set(catalog(t, "pears"), 2))
	if before.Resource(groupVersion.WithResource("apples")) == nil {
		t.Error("earlier snapshot: no apples, want them kept")
	}
	if before.Resource(groupVersion.WithResource("pears")) != nil {
		t.Error("earlier snapshot: got pears of the next set, want none")
	}
	set := live.Current()
	if set.Resource(groupVersion.WithResource("apples")) != nil || set.Resource(groupVersion.WithResource("pears")) == nil {
		t.Error("current set: got that of before the swap, want pears and no apples")
	}
	if set.Revision() != 2 {
		t.Errorf("current set: got revision %d, want 2", set.Revision())
	}
	if !before.ServesGroup("g") || !before.Serves(groupVersion) {
		t.Errorf("earlier snapshot: got group g served: %t, %s served: %t, want both", before.ServesGroup("g"), groupVersion, before.Serves(groupVersion))
	}
	if before.ServesGroup("") || before.Serves(schema.GroupVersion{Group: "g", Version: "v2"}) {
		t.Error("earlier snapshot: got the core group or g/v2 served, want only what the catalog has")
	}
	var none *apiset.Set
	if none.Resource(groupVersion.WithResource("apples")) != nil || none.ServesGroup("g") || none.Serves(groupVersion) {
		t.Error("nil set: got a resource, group or version served, want none")
	}
}

// TestWaitReturnsFirstNewerSet checks that Wait returns the first set that has at least the given
// revision.
func TestWaitReturnsFirstNewerSet(t *testing.T) {
	live := apiset.NewLive(apiset.Builder{}.Set(catalog(t), 1))
	if set, err := live.Wait(t.Context(), 1); err != nil || set.Revision() != 1 {
		t.Fatalf("existing set: got %v, %v, want revision 1", set, err)
	}
	got := make(chan int64)
	go func() {
		set, err := live.Wait(t.Context(), 3)
		if err != nil {
			t.Error(err)
		}
		got <- set.Revision()
	}()
	live.Swap(apiset.Builder{}.Set(catalog(t), 2))
	live.Swap(apiset.Builder{}.Set(catalog(t), 4))
	if r := <-got; r != 4 {
		t.Errorf("Wait(3) = set of revision %d, want 4", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := live.Wait(ctx, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled Wait(5) = %v, want %v", err, context.Canceled)
	}
}

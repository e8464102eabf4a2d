package apiset_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/registry"
)

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

func TestSnapshotsDoNotChange(t *testing.T) {
	gv := schema.GroupVersion{Group: "g", Version: "v1"}
	live := apiset.NewLive(apiset.Builder{}.Set(catalog(t, "apples"), 1))
	taken := live.Current()
	live.Swap(apiset.Builder{}.Set(catalog(t, "pears"), 2))
	if taken.Resource(gv.WithResource("apples")) == nil {
		t.Error("earlier snapshot: no apples, want them kept")
	}
	if taken.Resource(gv.WithResource("pears")) != nil {
		t.Error("earlier snapshot: got pears of the next set, want none")
	}
	s := live.Current()
	if s.Resource(gv.WithResource("apples")) != nil || s.Resource(gv.WithResource("pears")) == nil {
		t.Error("current set: got that of before the swap, want pears and no apples")
	}
	if s.Revision() != 2 {
		t.Errorf("current set: got revision %d, want 2", s.Revision())
	}
	if !taken.ServesGroup("g") || !taken.Serves(gv) || taken.ServesGroup("") ||
		taken.Serves(schema.GroupVersion{Group: "g", Version: "v2"}) {
		t.Error("got other groups and versions than the catalog")
	}
	var none *apiset.Set
	if none.Resource(gv.WithResource("apples")) != nil || none.ServesGroup("g") || none.Serves(gv) {
		t.Error("the empty set serves resources")
	}
}

// TestWaitForSet checks that Wait returns the first set whose revision is at least the given
// one.
func TestWaitForSet(t *testing.T) {
	live := apiset.NewLive(apiset.Builder{}.Set(catalog(t), 1))
	if s, err := live.Wait(t.Context(), 1); err != nil || s.Revision() != 1 {
		t.Fatalf("existing set: got %v, %v, want revision 1", s, err)
	}
	got := make(chan int64)
	go func() {
		s, err := live.Wait(t.Context(), 3)
		if err != nil {
			t.Error(err)
		}
		got <- s.Revision()
	}()
	live.Swap(apiset.Builder{}.Set(catalog(t), 2))
	live.Swap(apiset.Builder{}.Set(catalog(t), 4))
	if r := <-got; r != 4 {
		t.Errorf("waited for revision 3, got %d, want 4", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := live.Wait(ctx, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled wait: got %v", err)
	}
}

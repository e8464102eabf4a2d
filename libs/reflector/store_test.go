package reflector_test

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/reflector"
)

// TestStoreReportsChanges checks what a store holds after lists and changes, and what it reports.
func TestStoreReportsChanges(t *testing.T) {
	var changes []string
	text := func(v *string) string {
		if v == nil {
			return "-"
		}
		return *v
	}
	store := reflector.NewStore(func(o metav1.Object) string { return o.GetName() + o.GetResourceVersion() },
		func(before, after *string) {
			changes = append(changes, text(before)+">"+text(after))
		})
	object := func(name, revision string) metav1.Object {
		return &metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: revision}
	}
	expect := func(want string, values ...string) {
		t.Helper()
		slices.Sort(changes)
		all := store.All()
		slices.Sort(all)
		if got := fmt.Sprint(changes); got != want || !slices.Equal(all, values) {
			t.Errorf("got changes %s and values %v, want %s and %v", got, all, want, values)
		}
		changes = nil
	}
	list := func(objects ...metav1.Object) {
		store.StartList()
		for _, o := range objects {
			store.AddListed(o)
		}
		store.EndList("9")
	}

	list(object("a", "1"), object("b", "1"))
	expect("[->a1 ->b1]", "a1", "b1")
	store.Set(object("a", "2"))
	store.Set(object("c", "2"))
	store.Remove(object("b", "2"))
	store.Remove(object("b", "3")) // known to be gone
	expect("[->c2 a1>a2 b1>-]", "a2", "c2")
	store.StartList()
	store.AddListed(object("d", "3"))
	expect("[]", "a2", "c2") // an incomplete list changes nothing
	list(object("a", "2"), object("d", "3"))
	expect("[->d3 a2>a2 c2>-]", "a2", "d3")
	if _, ok := store.Get("ns", "c"); ok {
		t.Errorf("Get(\"ns\", \"c\") of a removed object = true, want false")
	}
	if v, ok := store.Get("ns", "d"); !ok || v != "d3" {
		t.Errorf("Get() = %q, %t, want \"d3\"", v, ok)
	}
}

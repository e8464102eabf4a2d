package watchcache_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/cache/objects"
)

// FuzzSelect checks that a list returns exactly the objects that the selectors match.
func FuzzSelect(f *testing.F) {
	store := newMemStore()
	for i := range 60 {
		o := object{Labels: map[string]string{}, Fields: map[string]string{nodeField: fmt.Sprintf("n%d", i%3), "empty": ""}}
		for j, key := range []string{"a", "b", "num"} {
			if i>>j&1 == 1 {
				o.Labels[key] = fmt.Sprint(i % (j + 2))
			}
		}
		store.putKey(fmt.Sprintf("/registry/pods/%c/%d", 'a'+rune(i%3), i%20), o.String())
	}
	rig := newRig(f, store, nil)
	for _, s := range [][2]string{
		{"", ""},
		{"a", "spec.nodeName=n1"},
		{"!a", "spec.nodeName!=n1"},
		{"a in (0,1),b notin (2)", "metadata.name=3"},
		{"num>1", "metadata.namespace!=a"},
		{"num<2,a==1", "empty="},
		{"a=", "none!="},
		{"a!=0,a!=1", "none=,spec.nodeName="},
		{"a", "metadata.name=1,metadata.name=2"},
		{"b in (,1)", "metadata.namespace=a,spec.nodeName=n0"},
		{"", "metadata.name="},
		{"a in (0,1),a notin (1),a!=2,a", "metadata.name!=1,metadata.name!=2"},
		{"num>0,num>1,num<9,num<4",
			"spec.nodeName!=n0,spec.nodeName!=n1"},
		{"a in (0,1,2,3,4,5,6,7,8),b notin (0,3,4,5,6,7,8,9)", "spec.nodeName=n1,spec.nodeName=n2"},
		{"a,!a", ""},
		{"num>9223372036854775807", ""},
		{"a,b,!c,!d,!e,!f,!g,!h,i!=1", ""},
		{"a,b,num,!d,!e,!f,!g,!h,i!=1", ""},
		{"a in (1,2),a in (0,2),!b,!c,!d,!e,!f,!g,!h,num>0", ""},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, labelText, fieldText string) {
		var sel objects.Selection
		var err error
		if sel.Labels, err = labels.Parse(labelText); err != nil {
			t.Skip()
		}
		if sel.Fields, err = fields.ParseSelector(fieldText); err != nil {
			t.Skip()
		}
		sn := rig.pods.Snapshot()
		got := []string{}
		want := []string{}
		sn.Select(sel, "", func(e *objects.Entry) bool { got = append(got, e.Key()); return true })
		sn.Ascend("", "", func(e *objects.Entry) bool {
			all := map[string]string{"metadata.name": e.Name(), "metadata.namespace": e.Namespace()}
			for k, v := range e.Fields().All() {
				all[k] = v
			}
			if sel.Labels.Matches(e.Labels()) && sel.Fields.Matches(fields.Set(all)) {
				want = append(want, e.Key())
			}
			if sel.Matches(e) != (sel.Labels.Matches(e.Labels()) && sel.Fields.Matches(fields.Set(all))) {
				t.Errorf("%q, %q: Matches(%s) = %t, want %t", labelText, fieldText, e.Key(), sel.Matches(e), !sel.Matches(e))
			}
			return true
		})
		if !slices.Equal(got, want) {
			t.Errorf("%q, %q select %q, want %q", labelText, fieldText, got, want)
		}
	})
}

package rbac_test

import (
	"testing"

	"binnacle/libs/rbac"
)

// TestPositionsAreParsedAndCompared checks parsing, formatting and comparison of positions.
func TestPositionsAreParsedAndCompared(t *testing.T) {
	for text, want := range map[string]string{
		"7":                "clusterrolebindings=7,clusterroles=7,rolebindings=7,roles=7",
		"roles=3":          "clusterrolebindings=0,clusterroles=0,rolebindings=0,roles=3",
		"roles=3, roles=4": "clusterrolebindings=0,clusterroles=0,rolebindings=0,roles=4",
		"":                 "", "-1": "", "roles": "", "roles=-1": "", "pods=1": "", "roles=1,": "", "99999999999999999999": "",
	} {
		p, err := rbac.ParsePosition(text)
		if (err != nil) != (want == "") || err == nil && p.String() != want {
			t.Errorf("%q: %s, %v, want %q", text, p, err, want)
		}
	}
	a := rbac.Position{}.Advance(rbac.KindRole, 5)
	b := a.Advance(rbac.KindClusterRole, 2).Advance(rbac.KindRole, 4)
	if !b.Covers(a) || a.Covers(b) {
		t.Errorf("%s and %s: got b covers a: %t, a covers b: %t, want true, false", a, b, b.Covers(a), a.Covers(b))
	}
	if !a.Covers(a) {
		t.Errorf("%s does not cover itself, want it covered", a)
	}
	if want := "clusterrolebindings=0,clusterroles=2,rolebindings=0,roles=5"; b.String() != want {
		t.Errorf("got position %s, want %s", b, want)
	}
}

// FuzzParsePosition checks that the text of each parsed position parses to the same position.
func FuzzParsePosition(f *testing.F) {
	f.Add("clusterrolebindings=4,clusterroles=2,rolebindings=9,roles=3")
	f.Fuzz(func(t *testing.T, text string) {
		position, err := rbac.ParsePosition(text)
		if err != nil {
			return
		}
		if again, err := rbac.ParsePosition(position.String()); err != nil || again != position {
			t.Errorf("%q: decoded again: got %s, %v, want %s", text, again, err, position)
		}
	})
}

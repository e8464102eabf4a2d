package h2

import (
	"slices"
	"strings"
	"testing"
)

// TestDeclaredTrailerNamesAreLimited checks that the bytes of declared trailer names are limited.
func TestDeclaredTrailerNamesAreLimited(t *testing.T) {
	long := strings.Repeat("x,", maxTrailerNames/2-8)
	for _, test := range []struct {
		lists, want []string
	}{
		{},
		{lists: []string{"a, x-b ,", "Trailer,content-length", "c"}, want: []string{"A", "C", "X-B"}},
		{lists: []string{"a", long + "y", "c"}, want: []string{"A", "C", "X", "Y"}},
		{lists: append(append([]string{"a"}, slices.Repeat([]string{long, "c"}, 300)...), "z"), want: []string{"A", "C", "X"}},
	} {
		var got []string
		for name := range declaredTrailers(test.lists) {
			got = append(got, name)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%.40q declare %q, want %q", test.lists, got, test.want)
		}
	}
}

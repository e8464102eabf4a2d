package api_test

import (
	"net/url"
	"strings"
	"testing"

	"binnacle/libs/api"
)

// FuzzParameter compares Parameter with url.ParseQuery, except for queries with too many
// parameters.
func FuzzParameter(f *testing.F) {
	for _, q := range []string{
		"", "pretty", "pretty=", "pretty=true&pretty=false", "a=b&pretty=1", "p%72etty=x", "pr+etty=x", "pretty=%zz&pretty=2",
		"%zz=1&pretty=2", "pretty=a;b&pretty=c", "pretty;=1", "&&pretty=%20+x&", "=pretty", "pretty=1=2",
	} {
		f.Add(q, "pretty")
	}
	f.Add("pr+etty=x&a=", "pr etty")
	for _, count := range []int{9999, 10000, 10001} {
		f.Add(strings.Repeat("a&", count)+"pretty", "pretty")
	}
	f.Fuzz(func(t *testing.T, query, name string) {
		parsed, _ := url.ParseQuery(query)
		want, wantOK := parsed[name]
		got, ok := api.Parameter(query, name)
		if ok != wantOK || ok && got != want[0] {
			t.Errorf("%q in %q is %q, %v; want %q", name, query, got, ok, want)
		}
	})
}

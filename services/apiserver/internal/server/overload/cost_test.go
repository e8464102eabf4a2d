package overload

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
)

// TestURLCost checks that long URLs have a cost, except for URLs of connections.
func TestURLCost(t *testing.T) {
	long := "/?labelSelector=" + strings.Repeat("a", LargeURL)
	list := &requestinfo.Info{Verb: "list", Method: "GET", IsResource: true, Target: &apiset.Resource{}}
	connect, watch := *list, *list
	watch.Verb = "watch"
	watch.Target = &apiset.Resource{Kind: &registry.Kind{}}
	connect.Sub = &registry.Subresource{Connect: true}
	delegated := &requestinfo.Info{Verb: "list", IsResource: true, Delegate: http.NotFoundHandler()}
	costOfLong := costFactor * (len(long) - 1) // without the question mark
	for name, test := range map[string]struct {
		info   *requestinfo.Info
		target string
		want   int
	}{
		"a list":                  {info: list, target: long, want: costOfLong},
		"a long path":             {info: list, target: "/" + strings.Repeat("a", LargeURL), want: costFactor * (LargeURL + 1)},
		"a watch":                 {info: &watch, target: long, want: costOfLong},
		"a query below the limit": {info: list, target: "/?" + strings.Repeat("a", LargeURL-2), want: 0},
		"a delegated request":     {info: delegated, target: long, want: costOfLong},
		"a connection":            {info: &connect, target: long, want: 0},
	} {
		r := httptest.NewRequest("GET", test.target, nil)
		if got := urlCost(test.info, r); got != test.want {
			t.Errorf("%s: got cost %d, want %d", name, got, test.want)
		}
	}
}

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

// Long URLs have a cost, except for URLs of connections.
func TestURLCost(t *testing.T) {
	long := "/?labelSelector=" + strings.Repeat("a", LargeURL)
	list := &requestinfo.Info{Verb: "list", Method: "GET", IsResource: true, Target: &apiset.Resource{}}
	connect, watch := *list, *list
	watch.Verb = "watch"
	watch.Target = &apiset.Resource{Kind: &registry.Kind{}}
	connect.Sub = &registry.Subresource{Connect: true}
	for name, c := range map[string]struct {
		op     *requestinfo.Info
		target string
		n      int
	}{
		"a list":                  {op: list, target: long, n: costFactor * (len(long) - 1)}, // without the question mark
		"a long path":             {op: list, target: "/" + strings.Repeat("a", LargeURL), n: costFactor * (LargeURL + 1)},
		"a watch":                 {op: &watch, target: long, n: costFactor * (len(long) - 1)},
		"a query below the limit": {op: list, target: "/?" + strings.Repeat("a", LargeURL-2), n: 0},
		"a delegated request": {op: &requestinfo.Info{Verb: "list", IsResource: true, Delegate: http.NotFoundHandler()},
			target: long, n: costFactor * (len(long) - 1)},
		"a connection": {op: &connect, target: long, n: 0},
	} {
		r := httptest.NewRequest("GET", c.target, nil)
		if n := urlCost(c.op, r); n != c.n {
			t.Errorf("%s: got %d, want %d", name, n, c.n)
		}
	}
}

package server_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/routing"
)

// TestLongRunningOfLongQueries checks that LongRunning, which does not parse long queries, returns
// the same as the request info of a full parse.
func TestLongRunningOfLongQueries(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	kinds := apiset.NewLive(apiset.Builder{}.Set(catalog, 0))
	filler := "labelSelector=" + strings.Repeat("x", 2<<10)
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/watch/pods", "/api/v1/namespaces/a/pods/b",
		"/api/v1/namespaces/a/pods/b/log", "/api/v1/proxy/namespaces/a/pods/b", "/readyz",
	} {
		for _, method := range []string{"GET", "DELETE"} {
			for _, watch := range []string{
				"", "watch", "watch=", "watch=1", "watch=true", "watch=false", "watch=0", "watch=0&watch=1",
				"watch=%zz&watch=1", "w%61tch=1", "watch=a;b", "Watch=1",
				"watch=1&fieldSelector=metadata.name%3Da",
			} {
				for _, query := range []string{watch + "&" + filler, filler + "&" + watch} {
					r := httptest.NewRequest(method, path, nil)
					r.URL.RawQuery = query
					want := requestinfo.Resolve(r, kinds.Current()).LongRunning()
					if got := server.LongRunning(kinds, routing.Delegates{})(r); got != want || r.URL.RawQuery != query {
						t.Errorf("%s %s?%.40s: got %v, want %v", method, path, query, got, want)
					}
				}
			}
		}
	}
}

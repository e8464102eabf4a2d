package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/routing"
)

// TestLongRunningRecognizesWatchesStreamsAndUpgrades checks that watches, pod streams and upgrades to
// a delegate are long-running.
func TestLongRunningRecognizesWatchesStreamsAndUpgrades(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	delegates := routing.Delegates{Extension: func(gv schema.GroupVersion) http.Handler {
		if gv.Group != "ext.test" {
			return nil
		}
		return http.NotFoundHandler()
	}}
	isLongRunning := server.LongRunning(apiset.NewLive(apiset.Builder{}.Set(catalog, 0)), delegates)
	for path, want := range map[string]struct{ withoutUpgrade, withUpgrade bool }{
		"/api/v1/pods":                                  {},
		"/api/v1/pods?watch=1":                          {withoutUpgrade: true, withUpgrade: true},
		"/api/v1/namespaces/n/pods/p/exec":              {withoutUpgrade: true, withUpgrade: true},
		"/apis/ext.test/v1/namespaces/n/vms/a/console":  {withUpgrade: true},
		"/apis/ext.test/v1/namespaces/n/vms?watch=1":    {withoutUpgrade: true, withUpgrade: true},
		"/apis/none.test/v1/namespaces/n/vms/a/console": {},
		"/version": {},
	} {
		for upgrade, isWanted := range map[bool]bool{false: want.withoutUpgrade, true: want.withUpgrade} {
			r := httptest.NewRequest("GET", path, nil)
			if upgrade {
				r.Header.Set("Connection", "keep-alive, Upgrade")
				r.Header.Set("Upgrade", "websocket")
			}
			if got := isLongRunning(r); got != isWanted {
				t.Errorf("%s, upgrade %t: got %t, want %t", path, upgrade, got, isWanted)
			}
		}
	}
}

package build

import (
	"encoding/json"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// TestEmulatedVersion checks what clients see of an emulated version.
func TestEmulatedVersion(t *testing.T) {
	t.Parallel()
	a := start(t, func(o *config.Options) { o.Compatibility.Emulated.Versions = []string{"1.32"} })
	var v apiversion.Info
	if err := json.Unmarshal(a.get("/version").body, &v); err != nil {
		t.Fatal(err)
	}
	if v.Major != "1" || v.Minor != "33" || v.EmulationMajor != "1" || v.EmulationMinor != "32" ||
		v.MinCompatibilityMajor != "1" || v.MinCompatibilityMinor != "31" ||
		!strings.HasPrefix(v.GitVersion, "v1.33.") {
		t.Errorf("got version %+v", v)
	}
	a.want(200, "GET", "/apis/networking.k8s.io/v1/networkpolicies", "")
	a.want(404, "GET", "/apis/networking.k8s.io/v1/servicecidrs", "")
	if r := a.get("/apis/networking.k8s.io/v1"); strings.Contains(string(r.body), "servicecidrs") {
		t.Errorf("%s", r.body)
	}
	if r := a.get("/openapi/v3/apis/networking.k8s.io/v1"); strings.Contains(string(r.body), "servicecidrs") {
		t.Error("what is not served is documented")
	}
	a.want(201, "POST", servicesPath, service("s", onePort)) // its IPAddress is not served
	metrics := string(a.get("/metrics").body)
	if !strings.Contains(metrics, `kubernetes_feature_enabled{name="WatchList",stage="BETA"} 1`) ||
		strings.Contains(metrics, `name="DeclarativeValidation"`) {
		t.Error("gates are not those of the version")
	}
}

package build

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// TestEmulatedVersionHidesNewerAPIs checks what clients see of an emulated version.
func TestEmulatedVersionHidesNewerAPIs(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) { options.Compatibility.Emulated.Versions = []string{"1.32"} })
	var version apiversion.Info
	if err := json.Unmarshal(api.get("/version").body, &version); err != nil {
		t.Fatal(err)
	}
	versions := fmt.Sprintf("%s.%s, emulates %s.%s, compatible with %s.%s", version.Major, version.Minor,
		version.EmulationMajor, version.EmulationMinor, version.MinCompatibilityMajor, version.MinCompatibilityMinor)
	if want := "1.33, emulates 1.32, compatible with 1.31"; versions != want {
		t.Errorf("got versions %q, want %q", versions, want)
	}
	if !strings.HasPrefix(version.GitVersion, "v1.33.") {
		t.Errorf("got gitVersion %s, want one of v1.33", version.GitVersion)
	}
	api.mustSend(200, "GET", "/apis/networking.k8s.io/v1/networkpolicies", "")
	api.mustSend(404, "GET", "/apis/networking.k8s.io/v1/servicecidrs", "")
	if response := api.get("/apis/networking.k8s.io/v1"); strings.Contains(string(response.body), "servicecidrs") {
		t.Errorf("got resources %s, want none of servicecidrs", response.body)
	}
	if response := api.get("/openapi/v3/apis/networking.k8s.io/v1"); strings.Contains(string(response.body), "servicecidrs") {
		t.Error("got an OpenAPI document with servicecidrs, want none: they are not served")
	}
	api.mustSend(201, "POST", servicesPath, service("s", onePort)) // its IPAddress is not served
	metrics := string(api.get("/metrics").body)
	if want := `kubernetes_feature_enabled{name="WatchList",stage="BETA"} 1`; !strings.Contains(metrics, want) {
		t.Errorf("got metrics without %s, want the gates of 1.32", want)
	}
	if strings.Contains(metrics, `name="DeclarativeValidation"`) {
		t.Error("got metrics with DeclarativeValidation, want the gates of 1.32")
	}
}

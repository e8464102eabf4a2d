package build

import (
	"encoding/json"
	"strings"
	"testing"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// TestEmulatedVersion checks what clients see of an emulated version.
func TestEmulatedVersion(t *testing.T) {
	t.Parallel()
	a := start(t, func(o *Options) { o.Compatibility.Emulated.Versions = []string{"1.32"} })
	var v apiversion.Info
	if err := json.Unmarshal(a.get("/version").body, &v); err != nil {
		t.Fatal(err)
	}
	if v.Major != "1" || v.Minor != "33" || v.EmulationMajor != "1" || v.EmulationMinor != "32" || v.MinCompatibilityMajor != "1" || v.MinCompatibilityMinor != "31" || !strings.HasPrefix(v.GitVersion, "v1.33.") {
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
	if !strings.Contains(metrics, `kubernetes_feature_enabled{name="WatchList",stage="BETA"} 1`) || strings.Contains(metrics, `name="DeclarativeValidation"`) {
		t.Error("gates are not those of the version")
	}
}

func TestInvalidEmulatedVersions(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--emulated-version=1.33":                                             "",
		"--emulated-version=kube=v1.31":                                       "",
		"--emulated-version=kube=1.30":                                        "emulation version 1.30 is not between [1.31, 1.33]",
		"--emulated-version=1.34":                                             "emulation version 1.34 is not between [1.31, 1.33]",
		"--emulated-version=1.32.1":                                           "patch version not allowed, got: kube=1.32.1",
		"--emulated-version=1.foo":                                            `"1.foo"`,
		"--emulated-version=wardle=1.2":                                       "component not registered: wardle",
		"--emulated-version=1.31 --emulated-version=kube=1.32":                "duplicate version flag, kube=1.31 and kube=1.32",
		"--emulation-forward-compatible":                                      "ServerRunOptions.EmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version",
		"--runtime-config-emulation-forward-compatible":                       "ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version",
		"--emulation-forward-compatible --emulated-version=1.32":              "",
		"--feature-gates=DeclarativeValidation=false":                         "",
		"--feature-gates=DeclarativeValidation=false --emulated-version=1.32": "feature is PreAlpha at emulated version 1.32",
		"--feature-gates=SidecarContainers=false":                             "feature is locked to true",
		"--feature-gates=SidecarContainers=false --emulated-version=1.32":     "",
	} {
		code, _, errs := asProgram(t, strings.Fields(args)...)
		if (code == 0) != (want == "") || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", args, code, errs)
		}
	}
}

package scenarios

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

// TestARM64 runs the API server and the store within as they are released for 64-bit ARM.
func TestARM64(t *testing.T) {
	const emulator = "qemu-aarch64-static"
	path, err := exec.LookPath(emulator)
	if err != nil {
		t.Skipf("programs for arm64 cannot be run without %s (qemu-user-static): %v", emulator, err)
	}
	s := harness.StartServer(t, harness.Emulated(path, harness.EverythingFor(t, "arm64"), "apiserver"))
	cli := harness.NewCLI(t, s)
	var version struct{ Platform string }
	if err := json.Unmarshal([]byte(cli.Run(t, "get", "--raw", "/version")), &version); err != nil || version.Platform != "linux/arm64" {
		t.Errorf("it runs on %q: %v", version.Platform, err)
	}
	cli.Run(t, "create", "configmap", "ship", "--from-literal=bearing=north")
	cli.Run(t, "patch", "configmap", "ship", "--patch", `{"data":{"bearing":"south"}}`)
	if got := cli.Run(t, "get", "configmap", "ship", "-o", "jsonpath={.data.bearing}"); got != "south" {
		t.Errorf("the bearing is %q", got)
	}
	cli.Run(t, "apply", "--server-side", "-f", "testdata/arm64.yaml")
	if got := cli.Run(t, "get", "deployments,services", "-o", "name"); !strings.Contains(got, "deployment.apps/ship") || !strings.Contains(got, "service/ship") {
		t.Errorf("there are %q", got)
	}
	s.Restart() // what was written is read again
	if got := cli.Run(t, "get", "configmap", "ship", "-o", "jsonpath={.data.bearing}"); got != "south" {
		t.Errorf("after a restart the bearing is %q", got)
	}
	cli.Run(t, "delete", "configmap", "ship")
}
